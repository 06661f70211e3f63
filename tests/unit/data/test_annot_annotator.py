"""What surrounds the words: prompts and boxes, engines that fail, audits that are stopped."""

import json
from collections.abc import Sequence
from pathlib import Path

import chess
import pytest

import commentary
from bench.annotations.audit import LOG, Audit
from chess_datasets.annotate.annotating import AnnotationRecipe
from chess_datasets.annotate.compose import Manner, compose
from chess_datasets.annotate.study import Effort, decidable, study, tempting_moves
from commentary import Score, Study
from commentary.concepts.standings import degree
from rookery.errors import EngineFault, InvalidInput, Unavailable
from rookery.prompt import render
from rookery.trace import Evaluation
from rookery.uci import Analysis, Line, Query
from tests.builders import position

MATE = "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1"
BLACK = "3r2k1/5ppp/8/8/8/8/5PPP/6K1 b - - 0 1"


class Engine:
    """Answers every query with the first legal moves; fails first as often as it is told."""

    def __init__(self, failures: Sequence[Exception] = ()) -> None:
        self.failures = list(failures)
        self.queries: list[Query] = []

    async def search(self, query: Query) -> Analysis:
        self.queries.append(query)
        if self.failures:
            raise self.failures.pop()
        board = chess.Board(query.fen)
        moves = [query.move] if query.move else sorted(move.uci() for move in board.legal_moves)
        lines = [Line(Evaluation(cp=50 - 100 * n), (uci,)) for n, uci in enumerate(moves[: query.lines])]
        return Analysis(tuple(lines), query.nodes)


class Cheat(Engine):
    """Plays what cannot be played."""

    async def search(self, query: Query) -> Analysis:
        return Analysis((Line(Evaluation(cp=1), ("a1a1",)),), query.nodes)


async def test_an_item_is_a_chat() -> None:
    annotation = await AnnotationRecipe("fen").annotate(position(MATE), Engine())
    assert annotation is not None
    assert [message["role"] for message in annotation.messages] == ["system", "user", "assistant"]
    user, answer = annotation.messages[1:]
    assert MATE in user["content"]
    assert answer["content"].startswith("<think>\n")
    assert answer["content"].endswith(f"\\boxed{{{annotation.move.san}}}")
    assert annotation.claims > 0
    assert json.loads(json.dumps(annotation.line))["fen"] == MATE


async def test_the_answer_belongs_to_the_board_that_the_prompt_shows() -> None:
    annotation = await AnnotationRecipe("mover-pieces", Manner(box="uci")).annotate(position(BLACK), Engine())
    assert annotation is not None
    shown = chess.Board(annotation.fen)
    assert shown.turn == chess.WHITE
    assert chess.Move.from_uci(annotation.move.uci) in shown.legal_moves
    assert annotation.answer.endswith(f"\\boxed{{{annotation.move.uci}}}")


async def test_the_same_manner_gives_the_same_text_and_another_seed_another() -> None:
    recipes = [AnnotationRecipe(manner=Manner(seed=seed)) for seed in (1, 1, 2)]
    one, again, other = [await recipe.annotate(position(MATE), Engine()) for recipe in recipes]
    assert one == again
    assert one != other


async def test_a_busy_engine_is_asked_again() -> None:
    busy = Unavailable("busy")
    busy.retry_after_s = 0.001
    engine = Engine([busy, busy])
    assert await AnnotationRecipe().annotate(position(MATE), engine) is not None
    assert engine.failures == []


async def test_an_engine_that_cheats_is_a_fault() -> None:
    with pytest.raises(EngineFault, match="a1a1"):
        await study(MATE, Cheat(), Effort())


class Doubtful(Engine):
    """Likes the first legal moves best, but not when it looks long enough."""

    async def search(self, query: Query) -> Analysis:
        found = await super().search(query)
        if query.nodes < 1000 or query.move:
            return found
        return Analysis((Line(Evaluation(cp=20), ("g1f1",)),), query.nodes)


async def test_the_longest_search_decides_and_every_other_move_has_its_own() -> None:
    engine = Doubtful()
    effort = Effort(nodes=1000, lines=2, tempting=1, screen_nodes=100, side_nodes=10)
    found = await study(MATE, engine, effort)
    first = min(move.uci() for move in chess.Board(MATE).legal_moves)
    assert [(query.nodes, query.lines, query.move) for query in engine.queries] == [
        (100, 2, None),
        (1000, 1, None),
        (100, 1, None),
        (10, 1, first),
        (10, 1, "d1d8"),
    ]
    assert engine.queries[2].fen.split()[1] == "b"
    assert [line.moves[0] for line in found.lines] == ["g1f1", first]
    assert [line.moves[0] for line in found.refuted] == ["d1d8"]
    assert found.threat is not None


async def test_nobody_threatens_while_the_mover_is_in_check() -> None:
    found = await study("4k3/8/8/8/8/8/4r3/4K3 w - - 0 1", Engine(), Effort(lines=1, tempting=0))
    assert found.threat is None


@pytest.mark.parametrize(
    "fen",
    [
        "rubbish",
        "8/8/8/8/8/8/8/8 w - - 0 1",
        "3R2k1/5ppp/8/8/8/8/5PPP/6K1 b - - 0 1",
        "kk6/8/8/8/8/8/8/K7 w - - 0 1",
    ],
)
def test_only_a_position_with_a_choice_is_annotated(fen: str) -> None:
    with pytest.raises(InvalidInput):
        decidable(fen)


def test_a_prompt_of_any_style_can_be_answered() -> None:
    board = chess.Board(MATE)
    line = commentary.StudyLine(Score(mate=1), ("d1d8",))
    for style in ("fen", "fen-moves", "board"):
        prompt = render(position(MATE), style=style)
        annotation = compose(Study(board.fen(), (line,)), prompt, Manner(), id_="x")
        assert annotation is not None
        assert annotation.style == style


@pytest.mark.parametrize("wrong", [{"voice": "poet"}, {"length": "endless"}, {"length": "5"}])
def test_a_manner_must_exist(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        Manner(**wrong)  # type: ignore[arg-type]


async def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path) -> None:
    positions = [(MATE, None), (BLACK, None)] * 6
    whole = await Audit(tmp_path / "whole", Engine()).run(positions, ahead=4)
    first = await Audit(tmp_path / "parts", Engine()).run(positions[:5], ahead=2)
    assert first.texts == 5
    log = tmp_path / "parts" / LOG
    log.write_bytes(log.read_bytes()[:-20])  # a torn last line comes again
    engine, seen = Engine(), []
    second = await Audit(tmp_path / "parts", engine).run(positions, ahead=3, advance=seen.append)
    assert second.summary() == whole.summary()
    assert second.texts == 12
    assert sum(seen) == 12
    assert seen[0] == 4
    assert whole.false == whole.unread == 0
    assert whole.planted.total() > 0


def test_natural_moves_are_captures_checks_and_castling() -> None:
    board = chess.Board("r3k2r/ppp2ppp/2n5/3q4/3P4/5N2/PPP2PPP/R2QK2R w KQkq - 0 9")
    moves = tempting_moves(board, leave_out=set(), count=3)
    assert chess.Move.from_uci("e1g1") in moves
    assert tempting_moves(board, leave_out=set(moves), count=3) != moves
    assert len(tempting_moves(board, leave_out=set(), count=1)) == 1


@pytest.mark.parametrize(
    ("cp", "found"),
    [(0, 0), (44, 0), (45, 1), (-45, -1), (110, 2), (-229, -2), (230, 3), (450, 4), (-9999, -4)],
)
def test_bands_of_an_advantage(cp: int, found: int) -> None:
    assert degree(Score(cp=cp)) == found

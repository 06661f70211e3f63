"""What can be earned without playing chess: each hack's maximum attainable mean reward, and its bound.

The positions are middles of real games, every legal move of each is scored, so that the mean of a move
drawn at random is known exactly. A hack must stay below it, or at the reward of an answer without a
legal move. Run with `-s` to see the table.
"""

import io
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

import chess
import chess.pgn
import pytest
from backports import zstd

from bench.reward.reading import written
from rookery.prompt import STYLES, render
from rookery.trace import Outcome, ScoreItem, Verdict
from services.reward import LocalScorer
from tests.builders import position

pytestmark = pytest.mark.stockfish

SAMPLES = Path(__file__).parents[3] / "samples" / "lichess.pgn.zst"
POSITIONS = 30
SCHEMES = ("delta", "best", "accuracy", "minmax")
WEIGHTED = "delta+0.1*format+0.1*length(2000)"


def boards_of_real_games() -> Iterator[chess.Board]:
    """From every fiftieth game, between plies 10 and 50."""
    with SAMPLES.open("rb") as file:
        text = io.TextIOWrapper(zstd.ZstdFile(file), "utf-8")
        for number in range(50 * POSITIONS * 2):
            if number % 50:
                chess.pgn.skip_game(text)
                continue
            game = chess.pgn.read_game(text)
            moves = list(game.mainline_moves()) if game else []
            ply = 10 + 7 * number // 50 % 41
            if len(moves) > ply:
                board = chess.Board()
                for move in moves[:ply]:
                    board.push(move)
                yield board.copy(stack=False)


@dataclass(frozen=True)
class Table:
    """The reward of every legal move, by position and UCI, under one scheme."""

    scorer: LocalScorer
    scheme: str
    boards: tuple[chess.Board, ...]
    rewards: tuple[dict[str, float], ...]

    @property
    def random_mean(self) -> float:
        """What a uniformly random legal move earns."""
        return fmean(fmean(rewards.values()) for rewards in self.rewards)

    @property
    def worst(self) -> float:
        return min(min(rewards.values()) for rewards in self.rewards)

    def verdicts(self, answer: Callable[[chess.Board], str], *, truncated: bool = False) -> list[Verdict]:
        items = [
            ScoreItem(board.fen(), answer(board), scheme=self.scheme, truncated=truncated)
            for board in self.boards
        ]
        verdicts = self.scorer.score_batch(items)
        assert all(isinstance(verdict, Verdict) for verdict in verdicts)
        return verdicts

    def mean(self, answer: Callable[[chess.Board], str]) -> float:
        return fmean(verdict.reward for verdict in self.verdicts(answer))


@pytest.fixture(scope="module")
def boards() -> tuple[chess.Board, ...]:
    return tuple(islice(boards_of_real_games(), POSITIONS))


@pytest.fixture(scope="module", params=SCHEMES)
def table(request: pytest.FixtureRequest, scorer: LocalScorer, boards: tuple[chess.Board, ...]) -> Table:
    rewards = []
    for board in boards:
        moves = [move.uci() for move in board.legal_moves]
        verdicts = scorer.score_batch(
            [ScoreItem(board.fen(), boxed(uci), scheme=request.param) for uci in moves]
        )
        rewards.append({uci: verdict.reward for uci, verdict in zip(moves, verdicts, strict=True)})
    table = Table(scorer, request.param, boards, tuple(rewards))
    report(table, "random legal move", table.random_mean)
    report(table, "best move", fmean(max(rewards.values()) for rewards in table.rewards))
    return table


def report(table: Table, probe: str, mean: float) -> None:
    print(f"\n{table.scheme:>8} {mean:+.3f}  {probe}", end="")


def boxed(text: str) -> str:
    return rf"\boxed{{{text}}}"


def first_uci(board: chess.Board) -> str:
    return min(move.uci() for move in board.legal_moves)


def illegal_uci(board: chess.Board) -> str:
    """From an empty square."""
    empty = next(name for name in chess.SQUARE_NAMES if not board.piece_at(chess.parse_square(name)))
    return f"{empty}{'a1' if empty != 'a1' else 'a2'}"


def prompt_text(board: chess.Board, style: str) -> str:
    return "\n".join(message.content for message in render(position(board.fen()), style=style).messages)


WITHOUT_A_MOVE: dict[str, tuple[Callable[[chess.Board], str], set[Outcome]]] = {
    "nothing": (lambda board: "", {Outcome.NO_BOX}),
    "an empty box": (lambda board: boxed(""), {Outcome.EMPTY_BOX}),
    "a box of blanks": (lambda board: boxed(r"\text{ }"), {Outcome.EMPTY_BOX}),
    "the move without a box": (first_uci, {Outcome.NO_BOX}),
    "the box in the reasoning": (lambda b: f"<think>{boxed(first_uci(b))}</think>", {Outcome.NO_BOX}),
    "the box in reasoning without end": (lambda b: f"<think>{boxed(first_uci(b))}", {Outcome.NO_BOX}),
    "a box that never closes": (lambda b: boxed(first_uci(b))[:-1], {Outcome.TRUNCATED}),
    "the position copied": (lambda b: b.fen(), {Outcome.NO_BOX}),
    "the position copied into the box": (lambda b: boxed(b.fen()), {Outcome.UNPARSABLE, Outcome.AMBIGUOUS}),
    "the null move": (lambda b: boxed("--"), {Outcome.NULL_MOVE}),
    "the null move in UCI": (lambda b: boxed("0000"), {Outcome.NULL_MOVE}),
    "resignation": (lambda b: boxed("resign"), {Outcome.UNPARSABLE}),
    "an illegal move": (lambda b: boxed(illegal_uci(b)), {Outcome.ILLEGAL}),
    "all legal moves in one box": (
        lambda b: boxed(" ".join(move.uci() for move in b.legal_moves)),
        {Outcome.AMBIGUOUS, Outcome.TOO_LONG},
    ),
    "two moves in one box": (
        lambda b: boxed(" or ".join(move.uci() for move in list(b.legal_moves)[:2])),
        {Outcome.AMBIGUOUS},
    ),
    "a move among words": (lambda b: boxed(f"I play {first_uci(b)}"), {Outcome.UNPARSABLE}),
    "a kilobyte in the box": (lambda b: boxed(first_uci(b) + " " * 1000), {Outcome.TOO_LONG}),
}


@pytest.mark.parametrize("probe", WITHOUT_A_MOVE)
def test_no_legal_move_earns_less_than_the_worst(table: Table, probe: str) -> None:
    answer, outcomes = WITHOUT_A_MOVE[probe]
    verdicts = table.verdicts(answer)
    report(table, probe, fmean(verdict.reward for verdict in verdicts))
    assert {verdict.outcome for verdict in verdicts} <= outcomes
    for verdict in verdicts:
        assert verdict.move is verdict.best is verdict.regret is None
        assert verdict.engine.nodes == 0
    assert max(verdict.reward for verdict in verdicts) < table.worst


def test_the_best_constant_answer_is_worse_than_chance(table: Table) -> None:
    """Of all texts that name a legal move anywhere, each paid as an illegal move where it is none."""
    illegal = table.verdicts(lambda board: boxed(illegal_uci(board)))[0].reward
    surplus: Counter[str] = Counter()
    for board, rewards in zip(table.boards, table.rewards, strict=True):
        for move in board.legal_moves:
            for text in {move.uci(), board.san(move)}:
                surplus[text] += rewards[move.uci()] - illegal
    best, total = surplus.most_common(1)[0]
    mean = table.mean(lambda board: boxed(best))
    report(table, f"always {best}, the best of {len(surplus)} constants", mean)
    assert mean == pytest.approx(illegal + total / len(table.boards))
    assert mean < table.random_mean


def test_the_prompt_copied_is_its_example_and_no_more(table: Table) -> None:
    for style in STYLES:
        if style.startswith("mover"):  # shows another board than the one the answer is read on
            continue
        copied = table.verdicts(lambda board, style=style: prompt_text(board, style))
        example = "nothing" if style.startswith(("rookworld", "game")) else boxed("Nf3")  # it asks for no box
        assert copied == table.verdicts(lambda board, example=example: example)
        assert fmean(verdict.reward for verdict in copied) < table.random_mean
    report(table, "the prompt copied", fmean(verdict.reward for verdict in copied))


def test_many_boxes_are_worth_the_last_one(table: Table) -> None:
    spam = table.verdicts(lambda board: " ".join(boxed(move.uci()) for move in board.legal_moves))
    last = [rewards[list(rewards)[-1]] for rewards in table.rewards]
    report(table, "a box for every legal move", fmean(last))
    assert [verdict.reward for verdict in spam] == last


def test_length_earns_nothing(table: Table) -> None:
    bare = table.verdicts(lambda board: boxed(first_uci(board)))
    noise = "<think>" + "I consider every move. " * 40_000 + "</think>"
    long = table.verdicts(lambda board: noise + boxed(first_uci(board)))
    assert long == bare
    assert table.verdicts(lambda board: boxed(first_uci(board)), truncated=True) == bare
    report(table, "a megabyte before the first legal move", fmean(verdict.reward for verdict in long))


def test_saying_it_twice_earns_nothing(table: Table) -> None:
    once = table.verdicts(lambda board: boxed(first_uci(board)))
    assert table.verdicts(lambda board: boxed(f"{first_uci(board)} {first_uci(board)}")) == once
    assert table.verdicts(lambda board: boxed(first_uci(board)) * 3) == once


def stalemates(count: int) -> Iterator[tuple[chess.Board, chess.Move]]:
    """Won endings, a queen or more ahead, in which some move stalemates."""
    rng = random.Random(31)
    while count:
        pieces = [
            chess.KING,
            chess.QUEEN,
            *rng.choices([chess.ROOK, chess.PAWN, chess.BISHOP], k=rng.randint(0, 2)),
        ]
        board = chess.Board(None)
        squares = rng.sample(range(8, 56), len(pieces))
        for square, piece in zip(squares, pieces, strict=True):
            board.set_piece_at(square, chess.Piece(piece, chess.WHITE))
        lone = rng.choice([square for square in chess.SQUARES if not board.piece_at(square)])
        board.set_piece_at(lone, chess.Piece(chess.KING, chess.BLACK))
        if not board.is_valid():
            continue
        for move in board.legal_moves:
            board.push(move)
            found = board.is_stalemate()
            board.pop()
            if found:
                yield board, move
                count -= 1
                break


@pytest.mark.parametrize("scheme", SCHEMES)
def test_stalemating_a_won_position_is_worse_than_chance(scorer: LocalScorer, scheme: str) -> None:
    rewards, chance = [], []
    for board, stalemate in stalemates(20):
        moves = list(board.legal_moves)
        verdicts = scorer.score_batch(
            [ScoreItem(board.fen(), boxed(move.uci()), scheme=scheme) for move in moves]
        )
        scores = {move: verdict.reward for move, verdict in zip(moves, verdicts, strict=True)}
        rewards.append(scores[stalemate])
        chance.append(fmean(scores.values()))
        assert scores[stalemate] < chance[-1]
    mean, random_mean = fmean(rewards), fmean(chance)
    print(f"\n{scheme:>8} {mean:+.3f}  always stalemate; a random move {random_mean:+.3f}", end="")
    if scheme == "delta":
        assert max(rewards) < -0.4


def some_legal(board: chess.Board) -> list[str]:
    return random.Random(board.fen()).sample([move.uci() for move in board.legal_moves], 3)


def forcing_first(board: chess.Board) -> list[str]:
    forcing = [move for move in board.legal_moves if board.is_capture(move) or board.gives_check(move)]
    return [move.uci() for move in dict.fromkeys((*forcing, *board.legal_moves))][:3]


CANDIDATES: dict[str, tuple[Callable[[chess.Board], list[str]], float, float]] = {
    # what the reasoning names; the most that any position pays; the most that they pay in the mean
    "nothing": (lambda board: [], 0.0, 0.0),
    "three illegal moves": (lambda board: [illegal_uci(board)] * 3, 0.0, 0.0),
    "one move three times": (lambda board: [first_uci(board)] * 3, 1 / 3, 1 / 3),
    "one move in two notations": (
        lambda board: [first_uci(board), board.san(chess.Move.from_uci(first_uci(board))), "-"],
        1 / 3,
        1 / 3,
    ),
    "a constant": (lambda board: ["e2e4", "d2d4", "g1f3"], 0.35, 0.05),
    "three random legal moves": (some_legal, 1.0, 0.92),
    "three captures or checks, if there are any": (forcing_first, 1.0, 0.96),
}


@pytest.mark.parametrize("probe", CANDIDATES)
def test_candidates_without_chess_earn_at_most(
    probe: str, scorer: LocalScorer, boards: tuple[chess.Board, ...]
) -> None:
    name, most, most_in_the_mean = CANDIDATES[probe]
    earned = candidates_earned(scorer, boards, name)
    print(f"\n{probe:28}  max {max(earned):.2f}  mean {fmean(earned):.3f}", end="")
    assert max(earned) <= most
    assert fmean(earned) <= most_in_the_mean


def candidates_earned(
    scorer: LocalScorer, boards: Sequence[chess.Board], name: Callable[[chess.Board], list[str]]
) -> list[float]:
    items = [
        ScoreItem(
            board.fen(),
            f"<think>{' '.join(name(board))}</think> {boxed(first_uci(board))}",
            scheme="delta+candidates",
        )
        for board in boards
    ]
    return [verdict.components["candidates(3)"] for verdict in scorer.score_batch(items)]


def test_naming_every_move_is_worth_as_much_as_the_first_three(
    scorer: LocalScorer, boards: tuple[chess.Board, ...]
) -> None:
    every = candidates_earned(scorer, boards, lambda board: [move.uci() for move in board.legal_moves])
    first = candidates_earned(scorer, boards, lambda board: [move.uci() for move in board.legal_moves][:3])
    assert every == first
    assert fmean(every) < 0.95


def test_the_best_move_among_different_legal_candidates_earns_everything(
    scorer: LocalScorer, boards: tuple[chess.Board, ...]
) -> None:
    def with_best(board: chess.Board) -> list[str]:
        best = scorer.score(ScoreItem(board.fen(), boxed(first_uci(board)))).best
        others = [move.uci() for move in board.legal_moves if best and move.uci() != best.uci]
        return [best.uci, *others[:2]] if best else []

    assert candidates_earned(scorer, boards, with_best) == [1.0] * len(boards)


def test_each_candidate_is_rewarded_as_if_it_were_the_answer(scorer: LocalScorer) -> None:
    fen, scheme = "6k1/5ppp/8/8/8/8/r4PPP/1R4K1 w - - 0 30", "delta+0.2*candidates(4)+0.5*mate"
    text = r"<think>b1b7, maybe Rb8#, not b1b7 or a1a8</think> \boxed{h2h3}"
    verdict = scorer.score(ScoreItem(fen, text, scheme=scheme))
    alone = {
        move: scorer.score(ScoreItem(fen, boxed(move), scheme="delta+0.5*mate")).reward
        for move in ("b1b7", "b1b8")
    }
    assert alone["b1b8"] == 0.5
    assert alone["b1b7"] < -0.2
    assert [(text[step.start : step.end], step.reward) for step in verdict.process_rewards] == [
        ("b1b7", alone["b1b7"]),
        ("Rb8#", alone["b1b8"]),
        ("b1b7", -1.0),  # named again
        ("a1a8", -1.0),  # illegal
    ]
    for more in (
        "+length",
        "+0.1*format+truth",
    ):  # the least and the most of terms about the text do not count
        assert (
            scorer.score(ScoreItem(fen, text, scheme=scheme + more)).process_rewards
            == verdict.process_rewards
        )
    assert not scorer.score(ScoreItem(fen, text, scheme="delta")).process_rewards


def test_stated_values_are_rewarded_by_the_engine_s_and_each_by_itself(scorer: LocalScorer) -> None:
    fen, scheme = "6k1/5ppp/8/8/8/8/r4PPP/1R4K1 w - - 0 30", "delta+0.3*values+0.1*consistency"
    win = scorer.score(ScoreItem(fen, boxed("h2h3"))).win_after
    text = (
        r"<think>Rb8# 100%, h3 20%, b1a1 30% and h3 90%, h2h5 40%. I have a 70% chance.</think> \boxed{Rb8}"
    )
    verdict = scorer.score(ScoreItem(fen, text, scheme=scheme))
    rewards = {text[step.start : step.end]: step.reward for step in verdict.value_rewards}
    lost = scorer.score(ScoreItem(fen, boxed("b1a1"))).win_after
    assert win is not None
    assert lost is not None
    assert rewards == pytest.approx({"100%": 1.0, "20%": 1 - abs(0.2 - win), "30%": 1 - abs(0.3 - lost)})
    assert [text[step.start : step.end] for step in verdict.process_rewards] == ["Rb8#", "h3", "b1a1 30%"]
    assert verdict.components == pytest.approx(
        {"delta": 0.0, "values(3)": 0.3 * fmean(rewards.values()), "consistency": 0.1}
    )
    other = scorer.score(ScoreItem(fen, text.replace(r"\boxed{Rb8}", r"\boxed{h3}"), scheme=scheme))
    assert other.components["consistency"] == 0.0
    tied = scorer.score(ScoreItem(fen, text.replace("20%", "100%"), scheme=scheme))
    assert tied.components["consistency"] == 0.05
    assert not scorer.score(ScoreItem(fen, text, scheme="delta+candidates")).value_rewards
    later = text.replace("h2h5", "f3").replace("40%", "100%").replace("{Rb8}", "{f3}")
    assert scorer.score(ScoreItem(fen, later, scheme=scheme)).components["consistency"] == 0.0
    assert scorer.score(ScoreItem(fen, later, scheme="delta+consistency")).components["consistency"] == 0.5
    late = later.replace("Rb8# 100%", "Rb8# 90%")
    assert scorer.score(ScoreItem(fen, late, scheme="delta+consistency")).components["consistency"] == 1.0
    assert scorer.score(ScoreItem(fen, late, scheme=scheme)).components["consistency"] == 0.0, "not judged"


def material_share(board: chess.Board) -> float:
    pawns = sum(
        worth * (len(board.pieces(piece, board.turn)) - len(board.pieces(piece, not board.turn)))
        for piece, worth in enumerate((1, 3, 3, 5, 9), start=1)
    )
    return 1 / (1 + math.exp(-0.4 * pawns))


VALUES: dict[str, tuple[Callable[[chess.Board], float], float]] = {
    "0%": (lambda board: 0.0, 0.65),
    "50%": (lambda board: 0.5, 0.83),
    "100%": (lambda board: 1.0, 0.37),
    "by the material": (material_share, 0.82),
}
"""What stating the same of three moves earns at most in the mean."""


@pytest.mark.parametrize("probe", VALUES)
def test_values_without_looking_at_the_move_earn_at_most(
    probe: str, scorer: LocalScorer, boards: tuple[chess.Board, ...]
) -> None:
    value, most = VALUES[probe]

    def stated(board: chess.Board) -> str:
        return ", ".join(f"{m.uci()} {round(100 * value(board))}%" for m in islice(board.legal_moves, 3))

    verdicts = scorer.score_batch(
        [
            ScoreItem(
                board.fen(),
                f"<think>{stated(board)}</think> {boxed(first_uci(board))}",
                scheme="delta+values+consistency",
            )
            for board in boards
        ]
    )
    earned = [verdict.components["values(3)"] for verdict in verdicts]
    print(f"\n{probe:28}  max {max(earned):.2f}  mean {fmean(earned):.3f}", end="")
    assert fmean(earned) <= most
    assert fmean(verdict.components["consistency"] for verdict in verdicts) < 0.4


def test_blunders_are_easy_to_evaluate(scorer: LocalScorer, boards: tuple[chess.Board, ...]) -> None:
    earned = []
    for board in boards[:10]:
        moves = [boxed(move.uci()) for move in board.legal_moves]
        verdicts = scorer.score_batch([ScoreItem(board.fen(), move) for move in moves])
        worst = sorted(zip(verdicts, board.legal_moves, strict=True), key=lambda pair: pair[0].reward)[:3]
        text = ", ".join(f"{move.uci()} 5%" for _, move in worst)
        item = ScoreItem(
            board.fen(), f"<think>{text}</think>{boxed(first_uci(board))}", scheme="delta+values"
        )
        earned.append(scorer.score(item).components["values(3)"])
    print(f"\nthree worst moves at 5%  mean {fmean(earned):.3f}", end="")
    assert 0.85 < fmean(earned) < 0.97


def empty_square(board: chess.Board) -> str:
    return illegal_uci(board)[:2]


def said_by_the_fen(board: chess.Board) -> str:
    """Everything that the FEN says, in sentences that are read."""
    sides = {chess.WHITE: "White", chess.BLACK: "Black"}
    wings = {chess.BB_H1 | chess.BB_H8: "kingside", chess.BB_A1 | chess.BB_A8: "queenside"}
    return " ".join(
        [
            f"{sides[board.turn]} is to move.",
            *(
                f"{name} has the right to castle {wing}."
                for side, name in sides.items()
                for corners, wing in wings.items()
                if board.castling_rights & corners & chess.BB_BACKRANKS & board.occupied_co[side]
            ),
            *(
                f"{sides[piece.color]} has a {chess.piece_name(piece.piece_type)} on {chess.square_name(at)}."
                for at, piece in board.piece_map().items()
            ),
        ]
    )


def defended_by_the_king(board: chess.Board) -> str:
    """A relation that takes no thought, for every pawn for which it is true."""
    return " ".join(
        f"The king on {chess.square_name(king)} defends the pawn on {chess.square_name(square)}."
        for side in chess.COLORS
        for king in board.pieces(chess.KING, side)
        for square in board.attacks(king) & board.pieces(chess.PAWN, side)
    )


SEARCHED = "Black's king defends the pawn on f7.\n\n{move} is quiet.\n\nThe material is level."
"""What earns most on just these positions, by greedy search over 1,700 sentences: those about the move or
nothing in particular that the library reads, and those that it writes about 80 positions of other games.
There the best text, its first two sentences, earns 0.15."""

TRUTHS: dict[str, tuple[Callable[[chess.Board], str], float, float]] = {
    # what the reasoning says; the most that any position pays; the most that they pay in the mean
    "nothing": (lambda board: "", 0.0, 0.0),
    "prose without a claim": (lambda board: "Let me think about this position step by step. " * 9, 0.0, 0.0),
    "a constant 20 times": (lambda board: "Material is level. " * 20, 0.25, 0.12),
    "an empty square": (lambda board: f"The square {empty_square(board)} is empty.", 0.0, 0.0),
    "a piece that is not there": (
        lambda board: f"The pawn on {empty_square(board)} is undefended.",
        -0.25,
        -0.25,
    ),
    "what the FEN says": (said_by_the_fen, 0.0, 0.0),
    "a cheap relation, every time": (defended_by_the_king, 0.35, 0.33),
    "the best constant found": (
        lambda board: SEARCHED.format(move=board.san(chess.Move.from_uci(first_uci(board)))),
        0.42,
        0.27,
    ),
    "the counts that are most often true": (
        lambda board: "The pawn on g2 is defended once. The pawn on f7 is defended once.",
        0.14,
        -0.1,
    ),
    "every claim of that kind": (
        lambda board: " ".join(
            f"{side} has {number} minor pieces still at home."
            for side in ("White", "Black")
            for number in ("no", "two", "three", "four")
        ),
        -0.5,
        -0.5,
    ),
}


@pytest.mark.parametrize("probe", TRUTHS)
def test_truth_without_thought_earns_at_most(
    probe: str, scorer: LocalScorer, boards: tuple[chess.Board, ...]
) -> None:
    text, most, most_in_the_mean = TRUTHS[probe]
    earned = truth_earned(scorer, boards, text)
    print(f"\n{probe:28}  max {max(earned):.2f}  mean {fmean(earned):.3f}", end="")
    assert max(earned) <= most
    assert fmean(earned) <= most_in_the_mean


def truth_earned(
    scorer: LocalScorer, boards: Sequence[chess.Board], text: Callable[[chess.Board], str]
) -> list[float]:
    items = [
        ScoreItem(
            board.fen(), f"<think>{text(board)}</think> {boxed(first_uci(board))}", scheme="delta+truth"
        )
        for board in boards
    ]
    return [verdict.components["truth"] for verdict in scorer.score_batch(items)]


def test_the_prompt_copied_earns_no_truth(scorer: LocalScorer, boards: tuple[chess.Board, ...]) -> None:
    for style in STYLES:
        copied = truth_earned(scorer, boards[:5], lambda board: prompt_text(board, style))  # noqa: B023
        assert max(copied) <= 0.0, style


def test_what_is_true_of_another_position_costs(scorer: LocalScorer, boards: tuple[chess.Board, ...]) -> None:
    own = {board.fen(): written(board.fen(), seed) for seed, board in enumerate(boards)}
    others = dict(zip(own, [*list(own.values())[1:], *list(own.values())[:1]], strict=True))
    true = truth_earned(scorer, boards, lambda board: own[board.fen()])
    copied = truth_earned(scorer, boards, lambda board: others[board.fen()])
    print(f"\ntrue claims {fmean(true):.3f}  of another position {fmean(copied):.3f}", end="")
    assert min(true) > 0.25
    assert fmean(true) > 0.5
    assert fmean(copied) < -0.8


REASONING: dict[str, Callable[[chess.Board], str]] = {
    WEIGHTED: lambda board: "A long look at the position.",
    "delta+0.2*candidates": lambda board: " ".join(some_legal(board)),
    "delta+0.2*truth": lambda board: written(board.fen(), 0),
}


@pytest.mark.parametrize("scheme", REASONING)
def test_no_reasoning_makes_up_for_a_missing_move(
    scheme: str, scorer: LocalScorer, boards: tuple[chess.Board, ...]
) -> None:
    refused = [boxed(text) for text in ("", "--", "a1a1", "well played")] + ["", "No idea."]
    for board in boards:
        moves = [boxed(move.uci()) for move in board.legal_moves]
        hacks = [f"<think>{REASONING[scheme](board)}</think> {text}" for text in refused]
        items = [ScoreItem(board.fen(), answer, scheme=scheme) for answer in moves + hacks]
        rewards = [verdict.reward for verdict in scorer.score_batch(items)]
        assert min(rewards[: len(moves)]) > max(rewards[len(moves) :])


def test_losing_by_illegal_moves_is_not_cheaper_than_losing(scorer: LocalScorer) -> None:
    lost = "4k3/8/8/8/8/8/qq6/4K3 w - - 0 1"
    moves = [scorer.score(ScoreItem(lost, boxed(move.uci()))) for move in chess.Board(lost).legal_moves]
    assert max(verdict.win_after for verdict in moves) < 0.03
    assert scorer.score(ScoreItem(lost, boxed("e1e3"))).reward < min(verdict.reward for verdict in moves)

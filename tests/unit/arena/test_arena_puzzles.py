"""Puzzles and suites: a hand-checked table, played by players whose every move is written down."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import chess
import pytest

from arena.answer_store import open_answers
from arena.asking import Asker
from arena.sections.puzzles import Puzzles, estimate_rating
from arena.sections.suites import Suite
from arena.strength.pentanomial import expected_score
from rookery.clients import RewardClient
from rookery.engines.player import Reply
from rookery.errors import InvalidInput
from rookery.trace import Outcome

# Two moves to mate; one move with a second mate (a1a8) beside the solution; a won queen in two moves.
TABLE = """PuzzleId,FEN,Moves,Rating,RatingDeviation,Popularity,NbPlays,Themes,GameUrl,OpeningTags
ladder,7k/8/8/8/8/8/R7/1R4K1 b - - 0 1,h8g8 a2a7 g8f8 b1b8,900,75,90,100,mate mateIn2,https://lichess.org/a,
back,6k1/2p2ppp/8/8/8/8/5PPP/RR4K1 b - - 0 30,c7c6 b1b8,1010,75,90,100,mate mateIn1,https://lichess.org/b,
fork,4k3/8/8/3q4/8/2N5/8/4K3 b - - 0 1,d5d4 c3b5 d4e4 e1f2,1950,75,90,100,fork,https://lichess.org/c,
"""


@dataclass
class Scripted:
    """Plays the moves that it is given, by the first two FEN fields; elsewhere it has no legal move."""

    moves: Mapping[str, str]
    name: str = "scripted"
    asked: list[str] = field(default_factory=list)

    def describe(self) -> Mapping[str, object]:
        return {"kind": "scripted", "moves": dict(self.moves)}

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        self.asked.append(board.fen())
        move = self.moves.get(" ".join(board.fen().split()[:2]))
        return Reply(chess.Move.from_uci(move), Outcome.LEGAL) if move else Reply(None, Outcome.ILLEGAL)

    async def close(self) -> None: ...


LADDER = ("6k1/8/8/8/8/8/R7/1R4K1 w", "5k2/R7/8/8/8/8/8/1R4K1 w")
BACK = "6k1/5ppp/2p5/8/8/8/5PPP/RR4K1 w"
FORK = ("4k3/8/8/8/3q4/2N5/8/4K3 w", "4k3/8/8/1N6/4q3/8/8/4K3 w")


@pytest.fixture
async def asker(tmp_path: Path):
    with open_answers(tmp_path / "answers.jsonl") as store:
        yield Asker(store, RewardClient("dns:///127.0.0.1:9"), "", temperature=1.0, seed=0, concurrency=2)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "three.csv"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize(
    ("moves", "solved", "first", "asked"),
    [
        ({LADDER[0]: "a2a7", LADDER[1]: "b1b8", BACK: "b1b8", FORK[0]: "c3b5", FORK[1]: "e1f2"}, 3, 3, 5),
        ({LADDER[0]: "a2a7", LADDER[1]: "b1b7", BACK: "a1a8", FORK[0]: "c3e4"}, 1, 2, 4),  # another mate
        ({LADDER[0]: "b1b7", BACK: "a1a2"}, 0, 0, 3),
        ({}, 0, 0, 3),
    ],
)
async def test_a_hand_checked_table(asker, table: Path, moves, solved: int, first: int, asked: int) -> None:
    puzzles = Puzzles.read(table, count=10, seed=0)
    player = Scripted(moves)
    section = puzzles.section({"scripted": await puzzles.ask(asker, player)}, players=["scripted"])
    cells = {row.metric.name: row.cells["scripted"].estimate.mean for row in section.tables[0].rows}
    assert cells["solved"] == pytest.approx(solved / 3)
    assert cells["first_move"] == pytest.approx(first / 3)
    assert len(player.asked) == asked
    bins = {row.metric.name: row.cells["scripted"].estimate.mean for row in section.tables[1].rows}
    assert set(bins) == {
        f"{low} to {low + 199}/{name}" for low in (800, 1000, 1800) for name in ("solved", "first_move")
    }
    assert bins["1000 to 1199/solved"] == float(BACK in moves and moves[BACK] != "a1a2")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_the_encoding_of_a_table_does_not_matter(encoding: str, table: Path) -> None:
    expected = Puzzles.read(table, count=10, seed=0)
    table.write_bytes(table.read_text().encode(encoding))
    assert Puzzles.read(table, count=10, seed=0) == expected


async def test_the_board_has_the_moves_since_the_puzzle_s_start(asker, table: Path) -> None:
    stacks = []

    class Watching(Scripted):
        async def play(self, board: chess.Board, *, seed: int) -> Reply:
            stacks.append([move.uci() for move in board.move_stack])
            return await super().play(board, seed=seed)

    puzzles = Puzzles.read(table, count=10, seed=0)
    await puzzles.ask(asker, Watching({LADDER[0]: "a2a7", LADDER[1]: "b1b8"}))
    assert ["h8g8", "a2a7", "g8f8"] in stacks


def test_the_drawn_puzzles_depend_on_the_seed_alone(table: Path, tmp_path: Path) -> None:
    reversed_table = tmp_path / "reversed.csv"
    head, *rows = TABLE.splitlines(keepends=True)
    reversed_table.write_text(head + "".join(reversed(rows)))
    for seed in range(5):
        drawn, again = (Puzzles.read(path, count=2, seed=seed).chosen for path in (table, reversed_table))
        assert list(drawn) == list(again)


def test_unsound_rows_are_named_and_skipped(table: Path) -> None:
    table.write_text(TABLE + "bad,8/8 w - - 0 1,a1a2 a2a3,1,1,1,1,,u,\nnumber,x,a1a2 a2a3,strong,1,1,1,,u,\n")
    puzzles = Puzzles.read(table, count=10, seed=0)
    assert len(puzzles.chosen) == 3
    assert [line.split(": ")[:2] for line in sorted(puzzles.report.skipped)] == [
        ["three.csv:5", "bad_position"],
        ["three.csv:6", "bad_number"],
    ]


@pytest.mark.parametrize("seed", range(5))
def test_unsound_rows_take_no_place_of_the_sample(table: Path, seed: int) -> None:
    sound = Puzzles.read(table, count=2, seed=seed)
    table.write_text(TABLE + "".join(f"bad{n},8/8 w - - 0 1,a1a2 a2a3,1,1,1,1,,u,\n" for n in range(30)))
    assert Puzzles.read(table, count=2, seed=seed).chosen == sound.chosen


def test_games_of_a_pgn_that_are_no_puzzles_are_named_and_skipped(tmp_path: Path) -> None:
    tags = '[FEN "4k3/8/8/8/8/8/4PP2/4K1N1 w - - 0 1"]\n\n'
    games = ["1. Nf3 *", "1. Sf3 *", "1. e4 Kd7 *", "1. e4 -- 2. e5 *", "1. Ka5 *", "1. e4 1-0 Kd7 2. e5 *"]
    (tmp_path / "p.pgn").write_text("\n\n".join(tags + game for game in games))
    puzzles = Puzzles.read(tmp_path / "p.pgn", count=10, seed=0)
    assert [(puzzle.id, puzzle.solution) for puzzle in puzzles.chosen] == [("p:1", ("g1f3",))]
    assert [line.split(": ")[1:3] for line in puzzles.report.skipped] == [
        ["game 2", "bad_move"],
        ["game 3", "no_last_move"],
        ["game 4", "null_move"],
        ["game 5", "bad_move"],
        ["game 6", "bad_move"],
    ]


@pytest.mark.parametrize(
    "content", ["", "name,move\nx,e4\n", TABLE.splitlines()[0] + "\n", TABLE + "x" * 200_000]
)
def test_a_file_without_puzzles_is_refused(table: Path, content: str) -> None:
    table.write_text(content)
    with pytest.raises(InvalidInput, match=r"three\.csv"):
        Puzzles.read(table, count=10, seed=0)


@pytest.mark.shared_data
async def test_mates_of_a_pgn_are_solved_by_their_main_lines(asker, shared_data: Path) -> None:
    puzzles = Puzzles.read(shared_data / "puzzles_mate_in_n" / "mate_in_2.pgn", count=20, seed=0)
    moves = {" ".join(t.fen.split()[:2]): t.move for puzzle in puzzles.chosen for t in puzzle.turns()}
    assert all(attempt.solved for attempt in await puzzles.ask(asker, Scripted(moves)))


def test_the_rating_is_the_likeliest_and_its_interval_that_of_the_information() -> None:
    ratings, solved = [1000, 1200, 1400, 1600], [True, True, False, False]
    estimate = estimate_rating(ratings, solved)
    assert estimate.mean == pytest.approx(1300, abs=0.2)  # by symmetry
    scores = [expected_score(1300 - rating) for rating in ratings]
    information = sum(score * (1 - score) for score in scores) * (math.log(10) / 400) ** 2
    assert estimate.ci95[1] - estimate.mean == pytest.approx(1.96 / math.sqrt(information), rel=1e-3)


def test_all_or_nothing_is_a_bound_and_no_rating() -> None:
    nothing, everything = (
        estimate_rating([1500] * 10, [False] * 10),
        estimate_rating([1500] * 10, [True] * 10),
    )
    assert nothing.mean is everything.mean is None
    assert nothing.ci95[0] == -math.inf
    assert (1 - expected_score(nothing.ci95[1] - 1500)) ** 10 == pytest.approx(0.05, abs=1e-3)
    assert everything.ci95 == (pytest.approx(3000 - nothing.ci95[1], abs=0.2), math.inf)


SUITE = """# a comment
4k3/8/8/8/8/8/4P3/4K3 w - - bm e4 e3; id "push";
4k3/8/8/8/8/8/4P3/4K3 w - - am Kd1; id "stay";
4k3/8/8/8/8/8/4P3/4K3 w - - wdl 2;
no epd
"""


@pytest.mark.parametrize(
    ("move", "solved"), [("e2e4", 1.0), ("e2e3", 1.0), ("e1f2", 0.5), ("e1d1", 0.0), ("", 0.0)]
)
async def test_suites_with_best_moves_and_moves_to_avoid(
    asker, tmp_path: Path, move: str, solved: float
) -> None:
    (tmp_path / "s.epd").write_text(SUITE)
    suite = Suite.read(tmp_path / "s.epd", seed=0)
    assert [problem.id for problem in suite.problems] == ["push", "stay"]
    assert [line.partition(": ")[0] for line in suite.report.skipped] == ["s.epd:4", "s.epd:5"]
    asked = await suite.ask(asker, Scripted({"4k3/8/8/8/8/8/4P3/4K3 w": move}))
    rows = suite.section({"scripted": asked}, players=["scripted"]).tables[0].rows
    assert rows[0].cells["scripted"].estimate.mean == solved


def test_a_suite_without_problems_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.epd").write_text("no epd\n")
    with pytest.raises(InvalidInput, match=r"no problems in .*s\.epd.*: s\.epd:1: "):
        Suite.read(tmp_path / "s.epd", seed=0)

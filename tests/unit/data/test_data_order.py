from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.games import Game, in_split
from chess_datasets.positions.numbered import PositionOrder, RareKind
from chess_datasets.positions.recipe import Shares
from rookery.errors import SetupError
from rookery.metrics import GAMES_SKIPPED, POSITIONS_SAMPLED
from rookery.prompt import mover_board
from rookery.trace import Phase
from tests.unit.data.texts import ENDING, ENDING_FEN, RUY, game, numbers_of

NUMBERS = st.integers(0, 1 << 63)
SEEDS = st.integers(0, (1 << 64) - 1)


@pytest.fixture
def make_collection(tmp_path: Path) -> Iterator[Callable[..., GameCollection]]:
    made: list[GameCollection] = []

    def make(*texts: str) -> GameCollection:
        paths = [tmp_path / f"{i}.pgn" for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        made.append(GameCollection(paths))
        return made[-1]

    yield make
    for collection in made:
        collection.close()


@settings(max_examples=2 * settings.default.max_examples)
@given(number=NUMBERS, seed=SEEDS)
def test_a_position_is_what_it_says(
    collection: GameCollection, order: PositionOrder, number: int, seed: int
) -> None:
    position = order.position(number, seed=seed)
    board = chess.Board(position.fen)
    assert board.is_valid()
    assert not board.is_game_over()
    source, game_number, ply = position.id.split(":")
    assert source == collection.sources[0].sha256[:8]
    assert int(ply) == position.ply
    game = collection.game(int(game_number) - 1)
    assert game is not None
    assert in_split(game.id, "heldout")
    assert (game.id, game.white_elo) == (position.game_id, position.white_elo)
    assert position.phase in Phase
    assert len(position.last_moves) == position.ply


@given(number=NUMBERS, seed=SEEDS)
def test_the_last_moves_lead_to_the_position(
    collection: GameCollection, order: PositionOrder, number: int, seed: int
) -> None:
    position = order.position(number, seed=seed)
    game = collection.game(int(position.id.split(":")[1]) - 1)
    assert game is not None
    board = chess.Board(game.start_fen)
    for uci in position.last_moves:
        board.push(board.parse_uci(uci))
    assert board.fen() == position.fen


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(number=NUMBERS, seed=SEEDS)
def test_nothing_depends_on_what_was_drawn_before(order: PositionOrder, number: int, seed: int) -> None:
    position = order.position(number, seed=seed)
    order.position(number + 1, seed=seed)
    assert order.position(number, seed=seed) == position


def test_the_order_is_the_same_in_every_process(order: PositionOrder) -> None:
    """Golden: a feed of another version must not repeat or leave out positions of a running run."""
    assert [order.position(i, seed=0).id for i in range(3)] == [
        "8999067f:1632:24",
        "8999067f:484:17",
        "8999067f:3:46",
    ]


@pytest.mark.parametrize("kind", ["mate-in-one", "check"])
def test_rare_positions_are_those_of_games_and_of_one_random_move(
    collection: GameCollection, order: PositionOrder, kind: RareKind
) -> None:
    drawn = [order.rare(kind, number, seed=0) for number in range(12)]
    assert drawn[:3] == [order.rare(kind, number, seed=0) for number in range(3)]
    played = 0
    for position in filter(None, drawn):
        game = collection.game(int(position.id.split(":")[1]) - 1)
        assert game is not None
        board = chess.Board(game.start_fen)
        for uci in position.last_moves:
            board.push(board.parse_uci(uci))
        assert (board.fen(), board.ply()) == (position.fen, position.ply)
        sans = [board.san(move) for move in board.legal_moves]
        assert any(san.endswith("#") for san in sans) if kind == "mate-in-one" else sans and board.is_check()
        played += list(position.last_moves) == game.uci_moves()[: position.ply]
    assert None not in drawn
    assert 0 < played < 12, "some are of games, some after a random move"


def test_without_mates_there_is_none(make_collection: Callable[..., GameCollection]) -> None:
    order = PositionOrder(make_collection(RUY), shares=Shares(), split="all")
    assert order.rare("mate-in-one", 0, seed=0) is None


def test_shares(order: PositionOrder) -> None:
    phases = Counter(order.position(i, seed=1).phase for i in range(2000))
    assert 330 < phases[Phase.OPENING] < 470
    assert 1110 < phases[Phase.MIDDLEGAME] < 1290
    assert 330 < phases[Phase.ENDGAME] < 470


def test_splits_share_no_game(collection: GameCollection) -> None:
    train, heldout = set(numbers_of(collection, "train")), set(numbers_of(collection, "heldout"))
    assert train.isdisjoint(heldout)
    assert train | heldout == set(numbers_of(collection, "all"))
    assert 0.03 < len(heldout) / len(collection) < 0.07


def test_the_sample_is_enough_to_evaluate_on(order: PositionOrder) -> None:
    positions = list(islice(order.distinct(seed=0), 2000))
    assert len({" ".join(mover_board(p.fen).fen().split()[:4]) for p in positions}) == 2000


def test_distinct_ends_when_there_are_no_more(make_collection: Callable[..., GameCollection]) -> None:
    order = PositionOrder(make_collection(game(RUY)), shares=Shares(), split="all")
    # After 1. e4 e5 the board is the mirror image of the one before, but for Black's first move.
    assert len(list(order.distinct(seed=0))) == 10


def test_a_mirrored_position_is_no_new_one(make_collection: Callable[..., GameCollection]) -> None:
    after_e4 = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
    mirrored = chess.Board(after_e4).mirror().fen()
    two = game("1... e5 *", FEN=after_e4) + game("1. e4 *", FEN=mirrored)
    order = PositionOrder(make_collection(two), shares=Shares(), split="all")
    assert len(list(order.distinct(seed=0))) == 1


def test_a_missing_phase_gives_way(make_collection: Callable[..., GameCollection]) -> None:
    order = PositionOrder(make_collection(game(RUY)), shares=Shares(0, 0, 1), split="all")
    assert order.position(5, seed=0).phase is Phase.OPENING


def test_files_are_one_archive(make_collection: Callable[..., GameCollection]) -> None:
    collection = make_collection(game(RUY) + game("1. d4 *"), game(ENDING, FEN=ENDING_FEN))
    assert len(collection) == 3
    numbers = [(g.source, g.number) for i in range(3) if isinstance(g := collection.game(i), Game)]
    first, second = (source.sha256[:8] for source in collection.sources)
    assert numbers == [(first, 1), (first, 2), (second, 1)]


def test_broken_games_are_counted_and_named_once(
    make_collection: Callable[..., GameCollection], caplog: pytest.LogCaptureFixture
) -> None:
    counter = GAMES_SKIPPED.labels("bad_move")
    before = counter._value.get()
    collection = make_collection(game("1. e5 *") + game(RUY) + game("1. e4 {open"))
    order = PositionOrder(collection, shares=Shares(), split="all")
    for number in range(50):
        assert order.position(number, seed=0).id.split(":")[1] == "2"
    collection.game(0)
    assert counter._value.get() == before + 1
    assert {game.number for game in collection.skipped.values()} == {1, 3}
    assert sum("0.pgn game 1 at byte 0: bad_move: illegal san: 'e5'" in line for line in caplog.messages) == 1
    assert sum("0.pgn game 3 at byte 102: open_comment" in line for line in caplog.messages) == 1


def test_drawn_positions_are_counted_by_phase(order: PositionOrder) -> None:
    position = order.position(7, seed=0)
    counter = POSITIONS_SAMPLED.labels(position.phase.value)
    before = counter._value.get()
    order.position(7, seed=0)
    assert counter._value.get() == before + 1


@pytest.mark.parametrize(
    ("text", "split", "said"),
    [
        ("", "all", r"0 games skipped: no position to give"),
        (game("1. e5 *"), "all", r"1 games skipped: .*0\.pgn game 1 at byte 0: bad_move: illegal san: 'e5'"),
        (game("1. Kd1 *", FEN="7k/8/8/8/8/8/8/4K3 w - - 0 1"), "all", "0 games skipped: no position to give"),
        (game(RUY), "heldout", r"split 'heldout'"),
    ],
)
def test_nothing_to_sample_is_a_clear_error(
    make_collection: Callable[..., GameCollection], text: str, split: str, said: str
) -> None:
    with pytest.raises(SetupError, match=rf"nothing to sample in '.*0\.pgn'.*{said}"):
        PositionOrder(make_collection(text), shares=Shares(), split=split)


def test_another_split_may_be_asked_for(collection: GameCollection, order: PositionOrder) -> None:
    train = order.position(0, seed=0, split="train")
    assert in_split(train.game_id, "train")
    assert train == PositionOrder(collection, shares=Shares(), split="train").position(0, seed=0)

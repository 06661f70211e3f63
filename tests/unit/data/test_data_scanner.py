import random
import time
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chess_datasets.pgn.scanner import Scanner
from rookery.pgn.rawgame import MAX_GAME_BYTES, Defect, RawGame
from rookery.pgn.splitter import Splitter
from tests.unit.data.texts import MATE, RUY, game

FRAGMENTS = st.sampled_from(
    [
        game(RUY),
        game(MATE),
        game("1. e4 { [%clk 0:03:00] } 1... e5\n2. Nf3 *"),
        '[Event "B"]\n',
        '[White "x"]\n',
        '[EventDate "?"]\n',
        "\n",
        "\n\n",
        " \n",
        "1. e4 e5 *\n",
        "1. d4 d5\n",
        "2. Nf3 Nc6 1-0",
        "{ open ",
        "} ",
        "; to the end ",
        "% hidden\n",
        "[%clk\n",
        "\r",
        "\r\n",
        "\ufeff",
        '\n\n[Event "',
        "(",
        "\u00e9",
    ]
)
TEXTS = st.lists(FRAGMENTS, max_size=25).map("".join)


def carefully(data: bytes) -> Iterator[RawGame]:
    splitter = Splitter()
    for line in data.splitlines(keepends=True):
        found = splitter.feed(line)
        if found:
            yield found
    last = splitter.finish()
    if last:
        yield last


def scanned(blocks: Iterable[bytes]) -> Iterator[RawGame]:
    scanner = Scanner()
    for block in blocks:
        yield from scanner.feed(block)
    yield from scanner.finish()


def facts(games: Iterable[RawGame]) -> list[tuple[int, int, str, Defect | None]]:
    return [(raw.number, raw.offset, raw.text, raw.checked().defect) for raw in games]


@given(text=TEXTS, newline=st.sampled_from(["\n", "\r\n", "\r"]), seed=st.integers(0, 1 << 30))
def test_the_fast_reader_cuts_where_the_careful_one_does(text: str, newline: str, seed: int) -> None:
    data, rng, blocks = text.replace("\n", newline).encode(), random.Random(seed), []
    rest = data
    while rest:
        size = rng.choice([1, 2, 7, 50, 400])
        blocks.append(rest[:size])
        rest = rest[size:]
    assert facts(scanned(blocks)) == facts(carefully(data))


def test_a_file_without_line_ends_takes_no_longer_in_small_blocks() -> None:
    started = time.process_time()
    [game] = scanned([b"e4 e5 " * 80] * (4 * MAX_GAME_BYTES // 480))
    assert time.process_time() - started < 1.0, "joined block by block, it takes ten times as long"
    assert (game.defect, game.detail) == (Defect.TOO_LONG, f"{4 * MAX_GAME_BYTES // 480 * 480 + 4} bytes")


@given(text=st.text(alphabet='[]{}();"% \r\n\u00e9abe4N1.*-', max_size=300), size=st.integers(1, 40))
def test_whatever_the_text(text: str, size: int) -> None:
    data = text.encode()
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    assert facts(scanned(blocks)) == facts(carefully(data))


def test_games_like_others_are_recognised_as_a_whole() -> None:
    """Lest the fast path be taken by nobody: these never reach the splitter."""
    texts = [game(RUY), game("1. e4\ne5\n2. Nf3 *"), game(MATE) + "\n\n", game("1. e4 {open *"), game("e4")]
    scanner = Scanner()
    found = list(scanner.feed("".join(texts).encode() + b'[Event "'))
    assert [raw.data for raw in found] == [text.encode() for text in texts]
    assert scanner._splitter is None


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_offsets_are_where_the_games_are(newline: str) -> None:
    texts = [game(RUY, White="\u00e9"), "1. e4 e5 *\n", "1. d4 *\n\n\n", game(MATE)]
    data = "".join(texts).replace("\n", newline).encode()
    for raw in scanned([data[:100], data[100:]]):
        assert data[raw.offset :].startswith(raw.data[:7])


def test_an_endless_game_is_not_kept() -> None:
    flood = game("1. e4 " + "{ and so on }\n" * (MAX_GAME_BYTES // 10)) + game(
        "1. d4 " + "d5 " * MAX_GAME_BYTES
    )
    first, second, third = scanned([(flood + game(MATE)).encode()])
    assert first.defect is second.defect is Defect.TOO_LONG
    assert len(first.data) <= MAX_GAME_BYTES >= len(second.data)
    assert third.defect is None


def test_what_follows_damage_is_read_from_the_next_certain_beginning() -> None:
    scanner = Scanner()
    before = list(scanner.feed((game(RUY) + '[Event "cut"]\n\n1. e4 e5').encode()))
    [broken] = scanner.abandon("damaged")
    after = list(scanner.feed(("f3 Nc6 *\n\n" + game(MATE) + game(RUY)).encode())) + list(scanner.finish())
    assert [raw.number for raw in (*before, broken, *after)] == [1, 2, 3, 4]
    assert (broken.defect, broken.detail, broken.data) == (Defect.DAMAGED_FILE, "damaged", b'[Event "cut"]\n')
    assert [MATE in raw.text for raw in after] == [True, False]

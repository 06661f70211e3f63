"""Reads ordinary games with a native parser, thirty times as fast as python-chess.

A game is ordinary if it is standard chess from the initial position, in plain SAN, with comments in braces.
All other games, and those that the native parser refuses, are read by python-chess. It also reads every
1024th game that the native parser accepts, and raises an error if the two differ.

The parser is `rust-pgn-reader-python-binding` (shakmaty); without it everything is read by python-chess.
"""

import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version

import chess

from rookery.errors import RookeryError
from services.data.pgn.games import FromMoves, Game, Played, SkippedGame
from services.data.pgn.native_chunk import Chunk
from services.data.pgn.parser import parse
from services.data.pgn.rawgame import RawGame, id_of, without_comments, without_en_passant
from services.data.pgn.tags import STANDARD_NAMES, Facts, read_facts
from services.data.store.files import Source

MODULE = "rust_pgn_reader_python_binding"
PACKAGE = "rust-pgn-reader-python-binding"
AVAILABLE = importlib.util.find_spec(MODULE) is not None

REFEREED = 1024
"""Of so many accepted games python-chess reads one as well."""

_NO_LINES = bytes.maketrans(b"\t\r\n", b"   ")  # a blank line would end the game
_START = re.compile(rb"\[(?<![^\n]\[)FEN\s")
# What ordinary moves are spelled with, results and annotation marks included.
_ORDINARY = b"abcdefghxKQRBNO0123456789=+#!?$.-/* "
_RESULTS = (b"1-0", b"0-1", b"1/2-1/2", b"*")
# A result amid the moves, a pass, castling with zeros: here each parser has its own opinion.
_NOBODY_TAKES = re.compile(rb"x(?<![a-hKQRBN]x)(?<![a-hKQRBN][1-8]x)")
_STRANGE = (b"-0", b"-1", b"/", b"*", b"--", b" 0", b".0")


def read_games(
    raws: Sequence[RawGame], source: Source, *, chess960: bool = False
) -> Iterator[Played | SkippedGame]:
    """Each game in order, or why there is none, as `services.data.pgn.games.parse` has it."""
    native = _read_natively(raws, source) if AVAILABLE else {}
    for index, raw in enumerate(raws):
        played = native.get(index)
        if played is None:
            parsed = parse(raw, source, chess960=chess960)
            yield FromMoves(parsed) if isinstance(parsed, Game) else parsed
        else:
            if int(played.game.id, 16) % REFEREED == 0:
                _referee(played.game, raw, source)
            yield played


def _referee(game: Game, raw: RawGame, source: Source) -> None:
    judged = parse(raw, source)
    if judged != game:
        raise RookeryError(
            f"{source.path} game {raw.number} at byte {raw.offset}: {MODULE} and python-chess disagree: "
            f"{game!r} is {judged!r}; uninstall the former and report this"
        )


def name() -> str:
    """Who reads the games, for manifests."""
    return f"{PACKAGE} {version(PACKAGE)}, python-chess" if AVAILABLE else "python-chess"


def ordinary_moves(raw: RawGame) -> bytes | None:
    """The moves without comments, if every parser must read them alike or refuse them."""
    tags, moves = raw.sections()
    if _START.search(tags) or (b"Variant" in tags and not read_facts(raw).variant):
        return None
    lineless = without_en_passant(moves).translate(_NO_LINES)
    moves = (without_comments(lineless) or b"").strip()
    if lineless.count(b"{") != lineless.count(b" {") + lineless.startswith(b"{"):
        return None  # a comment within a word
    played = next((moves.removesuffix(end) for end in _RESULTS if moves.endswith(end)), moves)
    if moves.translate(None, _ORDINARY) or any(strange in played for strange in _STRANGE):
        return None
    if _NOBODY_TAKES.search(played):
        return None
    return moves if played.translate(None, b"0123456789. ") else None


def _read_natively(raws: Sequence[RawGame], source: Source) -> dict[int, Played]:
    """The games that are ordinary and sound, by their index."""
    asked = {index: question for index, raw in enumerate(raws) if (question := _question(raw))}
    if not asked:
        return {}
    parser = importlib.import_module(MODULE)
    texts = [moves.decode() for moves, _ in asked.values()]
    parsed = parser.parse_games_from_strings(texts, num_threads=1)
    found = [(chunk, number) for chunk in map(Chunk, parsed.chunks) for number in range(chunk.games)]
    return {
        index: chunk.played(number, _game(raws[index], source, *question))
        for (index, question), (chunk, number) in zip(asked.items(), found, strict=True)
        if chunk.is_sound(number)
    }


def _question(raw: RawGame) -> tuple[bytes, Facts] | None:
    """The moves to be read natively, if they may be, and what the tags say."""
    facts = read_facts(raw)
    if raw.defect or facts.variant not in STANDARD_NAMES:
        return None
    moves = ordinary_moves(raw)
    return None if moves is None else (moves, facts)


def _game(raw: RawGame, source: Source, moves: bytes, facts: Facts) -> Callable[..., Game]:
    """What makes the game, but for its moves and phases."""
    return partial(
        Game,
        source=source.sha256[:8],
        number=raw.number,
        id=id_of([], moves),
        start_fen=chess.STARTING_FEN,
        white_elo=facts.white_elo,
        black_elo=facts.black_elo,
    )

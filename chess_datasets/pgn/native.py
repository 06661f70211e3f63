"""Reads ordinary games with a native parser, thirty times as fast as python-chess.

A game is ordinary if it is standard chess from the initial position, in plain SAN, with comments in braces.
All other games, and those that the native parser refuses, are read by python-chess. It also reads every
1024th game that the native parser accepts, and raises an error if the two differ.

The parser is `rust-pgn-reader-python-binding` (shakmaty); without it everything is read by python-chess. It
fills arrays for many games at once, and work on all positions is done on whole arrays. Rare cases (bare
kings, repetitions, en passant) are decided by python-chess, one position at a time.
"""

import importlib
import importlib.util
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from itertools import compress, product
from typing import Any

import chess
import numpy as np
from numpy.typing import NDArray

from chess_datasets.pgn.games import (
    ENDGAME_PIECES,
    FIVEFOLD_PLIES,
    OPENING_PLIES,
    OVER,
    PHASES,
    EndDetector,
    Game,
    SkippedGame,
    SoundGame,
)
from chess_datasets.pgn.parser import parse_game
from chess_datasets.pgn.tags import Facts, read_facts
from chess_datasets.store.files import Source
from rookery.errors import RookeryError
from rookery.pgn.rawgame import RawGame, id_of, without_comments, without_en_passant
from rookery.pgn.reader import STANDARD_NAMES
from rookery.trace import Phase

_PIECES = b".PNBRQKpnbrqk"
_SYMBOLS = bytes.maketrans(bytes(range(len(_PIECES))), _PIECES)
# Each square in a byte, so that eight are counted at once: in the low half what is neither king nor pawn, in
# the high half what can always mate, with whatever the opponent has.
_WEIGHTS = bytes((chr(s) in "NBRQnbrq") + 16 * (chr(s) in "PRQprq") for s in _PIECES).ljust(256, b"\0")
# Makes one number of a placement; different ones that share it only cost a closer look.
_FACTORS = np.arange(1, 17, 2, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
_LOW_HALVES = np.uint64(0x0F0F0F0F0F0F0F0F)
_CASTLING = {
    bytes(rights): "".join(compress("KQkq", rights)) or "-" for rights in product((False, True), repeat=4)
}
_RANKS = range(56, -1, -8)
_RUNS = tuple(("." * length, str(length)) for length in range(8, 0, -1))

# More than these and a game must be looked at move by move: 75 moves, five repetitions.
_QUIET_PLIES = 150
_REPETITIONS = 4

_OPENING, _MIDDLEGAME, _ENDGAME = map(PHASES.index, (Phase.OPENING, Phase.MIDDLEGAME, Phase.ENDGAME))

MakeGame = Callable[..., Game]
"""Makes a game from its `moves` and `phases`. All other fields are set already."""


class Chunk:
    """Games parsed together."""

    def __init__(self, parsed: Any) -> None:
        self._valid = parsed.valid
        self._first_move = parsed.move_offsets.tolist()
        self._first_position = parsed.position_offsets.tolist()
        self._boards = parsed.boards.reshape(-1, 64)
        self._squares = parsed.boards.tobytes()
        self._castling = parsed.castling.tobytes()
        self._en_passant = parsed.en_passant
        self._clocks = parsed.halfmove_clock
        promotions = np.maximum(parsed.promotions, 0).astype(np.uint16)
        moves = parsed.from_squares | parsed.to_squares.astype(np.uint16) << 6 | promotions << 12
        self._moves = moves.tobytes()
        phases, self._bare = self._divide()
        self._phases = phases.tobytes()
        self._placements = (self._boards.view(np.uint64) * _FACTORS).sum(axis=1)
        starts = self._first_position[:-1]
        self._quietest = np.maximum.reduceat(self._clocks, starts).tolist() if starts else []
        self._has_bare = np.logical_or.reduceat(self._bare, starts).tolist() if starts else []

    @property
    def games(self) -> int:
        return len(self._valid)

    def sound_game(self, number: int, make: MakeGame) -> SoundGame | None:
        """A game with access to its positions, or None if it is not sound. `make` makes the `Game`."""
        if not self._valid[number] or self._first_move[number] == self._first_move[number + 1]:
            return None
        first, last = self._first_position[number : number + 2]
        game = make(
            moves=array("H", self._moves[2 * self._first_move[number] : 2 * self._first_move[number + 1]]),
            phases=self._phases[first : last - 1],
        )
        plies_over = self._plies_over(number, game, first, last - 1)
        if plies_over:
            phases = bytearray(game.phases)
            for ply in plies_over:
                phases[ply] = OVER
            game = make(moves=game.moves, phases=bytes(phases))
        return NativeGame(game, self, first)

    def _divide(self) -> "tuple[NDArray[np.uint8], NDArray[np.bool_]]":
        """The phase of every position, and whether it lacks what can always mate."""
        lengths = np.diff(self._first_position)
        plies = np.arange(len(self._boards)) - np.repeat(self._first_position[:-1], lengths)
        phases = np.where(plies < OPENING_PLIES, _OPENING, _MIDDLEGAME).astype(np.uint8)
        weights = np.frombuffer(self._squares.translate(_WEIGHTS), np.uint64).reshape(-1, 8)
        ranks = weights.sum(axis=1)
        pieces = (ranks & _LOW_HALVES).view(np.uint8).reshape(-1, 8).sum(axis=1)
        phases[pieces <= ENDGAME_PIECES] = _ENDGAME
        return phases, (ranks & ~_LOW_HALVES) == 0

    def _plies_over(self, number: int, game: Game, first: int, last: int) -> list[int]:
        """The plies at which the rules had ended the game."""
        quietest = self._quietest[number]
        # A position may have come five times only if some placement comes that often.
        placements = self._placements[first:last].tolist() if quietest >= FIVEFOLD_PLIES else []
        if quietest >= _QUIET_PLIES or max(Counter(placements).values(), default=0) >= _REPETITIONS:
            end = EndDetector()
            return [ply for ply, board, _ in game.replay() if end.is_over(board)]
        if not self._has_bare[number]:
            return []
        bare = np.flatnonzero(self._bare[first:last]).tolist()
        return [ply for ply in bare if chess.Board(self.fen(first + ply, ply)).is_insufficient_material()]

    def fen(self, position: int, ply: int) -> str:
        """The FEN of a position, as python-chess writes it."""
        squares = self._squares[64 * position : 64 * position + 64].translate(_SYMBOLS).decode()
        placement = "/".join([_rank(squares[rank : rank + 8]) for rank in _RANKS])
        castling = _CASTLING[self._castling[4 * position : 4 * position + 4]]
        fen = f"{placement} {'bw'[ply % 2 == 0]} {castling}"
        rest = f"{int(self._clocks[position])} {ply // 2 + 1}"
        file = int(self._en_passant[position])
        if file < 0 or not _pawn_beside(squares, file, white=ply % 2 == 0):
            return f"{fen} - {rest}"
        target = f"{chess.FILE_NAMES[file]}{'6' if ply % 2 == 0 else '3'}"
        return chess.Board(f"{fen} {target} {rest}").fen()


class NativeGame(SoundGame):
    """A sound game of a chunk, which has its positions."""

    def __init__(self, game: Game, chunk: Chunk, first: int) -> None:
        super().__init__(game)
        self._chunk = chunk
        self._first = first

    def fen(self, ply: int) -> str:
        return self._chunk.fen(self._first + ply, ply)


@lru_cache(1 << 16)
def _rank(squares: str) -> str:
    """A rank as in a FEN: digits stand for empty squares."""
    for run, length in _RUNS:
        squares = squares.replace(run, length)
    return squares


def _pawn_beside(squares: str, file: int, *, white: bool) -> bool:
    """Whether a pawn of the mover stands beside the pawn on `file` that has just moved two squares."""
    start = 32 if white else 24
    neighbours = squares[start + max(0, file - 1) : start + min(8, file + 2)]
    return ("P" if white else "p") in neighbours


MODULE = "rust_pgn_reader_python_binding"
PACKAGE = "rust-pgn-reader-python-binding"
AVAILABLE = importlib.util.find_spec(MODULE) is not None

REFEREED = 1024
"""One in this many accepted games is read by python-chess, too."""

_NO_LINES = bytes.maketrans(b"\t\r\n", b"   ")  # a blank line would end the game
# What ordinary moves are spelled with, results and annotation marks included.
_ORDINARY = b"abcdefghxKQRBNO0123456789=+#!?$.-/* "
_RESULTS = (b"1-0", b"0-1", b"1/2-1/2", b"*")
# Begins with the mark: several times as fast as with what comes before it.
_MARK_BEFORE_MOVE = re.compile(rb"[?!](?<![^\s.][?!])[?!]*[a-h]")
_CAPTURE_WITHOUT_PIECE = re.compile(rb"x(?<![a-hKQRBN]x)(?<![a-hKQRBN][1-8]x)")
# A result amid the moves, a pass, castling with zeros: each parser reads these in its own way.
_AMBIGUOUS = (b"-0", b"-1", b"/", b"*", b"--", b" 0", b".0")


def read_games(
    raws: Sequence[RawGame], source: Source, *, chess960: bool = False
) -> Iterator[SoundGame | SkippedGame]:
    """Each game in order, or why it is skipped, as `chess_datasets.pgn.parser.parse_game` would return it."""
    native = _read_natively(raws, source) if AVAILABLE else {}
    for index, raw in enumerate(raws):
        played = native.get(index)
        if played is None:
            parsed = parse_game(raw, source, chess960=chess960)
            yield SoundGame(parsed) if isinstance(parsed, Game) else parsed
        else:
            if int(played.game.id, 16) % REFEREED == 0:
                _referee(played.game, raw, source)
            yield played


def _referee(game: Game, raw: RawGame, source: Source) -> None:
    reference = parse_game(raw, source)
    if reference != game:
        raise RookeryError(
            f"{source.path} game {raw.number} at byte {raw.offset}: {MODULE} and python-chess disagree: "
            f"{game!r} is {reference!r}; uninstall the former and report this"
        )


def name() -> str:
    """The names of the parsers and their versions, for manifests."""
    return f"{PACKAGE} {version(PACKAGE)}, python-chess" if AVAILABLE else "python-chess"


def ordinary_moves(raw: RawGame) -> bytes | None:
    """The moves without comments, or None if two parsers might read them differently."""
    tags, moves = raw.sections()
    if b"[FEN" in tags or (b"Variant" in tags and not read_facts(raw).variant):
        return None
    lineless = without_en_passant(moves).translate(_NO_LINES)
    moves = (without_comments(lineless) or b"").strip()
    if lineless.count(b"{") != lineless.count(b" {") + lineless.startswith(b"{"):
        return None  # a comment within a word
    played = next((moves.removesuffix(end) for end in _RESULTS if moves.endswith(end)), moves)
    if moves.translate(None, _ORDINARY) or any(text in played for text in _AMBIGUOUS):
        return None
    if _CAPTURE_WITHOUT_PIECE.search(played) or _MARK_BEFORE_MOVE.search(played):
        return None
    return moves if played.translate(None, b"0123456789. ") else None


def _read_natively(raws: Sequence[RawGame], source: Source) -> dict[int, SoundGame]:
    """The games that are ordinary and sound, by index."""
    ordinary = {index: game for index, raw in enumerate(raws) if (game := _moves_and_facts(raw))}
    if not ordinary:
        return {}
    parser = importlib.import_module(MODULE)
    texts = [moves.decode() for moves, _ in ordinary.values()]
    parsed = parser.parse_games_from_strings(texts, num_threads=1)
    numbered = [(chunk, number) for chunk in map(Chunk, parsed.chunks) for number in range(chunk.games)]
    return {
        index: played
        for (index, (moves, facts)), (chunk, number) in zip(ordinary.items(), numbered, strict=True)
        if (played := chunk.sound_game(number, _game_maker(raws[index], source, moves, facts)))
    }


def _moves_and_facts(raw: RawGame) -> tuple[bytes, Facts] | None:
    """The moves and the facts of a game that can be read natively; otherwise None."""
    facts = read_facts(raw)
    if raw.defect or facts.variant not in STANDARD_NAMES:
        return None
    moves = ordinary_moves(raw)
    return None if moves is None else (moves, facts)


def _game_maker(raw: RawGame, source: Source, moves: bytes, facts: Facts) -> MakeGame:
    """Returns a function that makes the game. `moves` is the text whose hash is the game's id."""
    return partial(
        Game,
        source=source.sha256[:8],
        number=raw.number,
        id=id_of([], moves),
        start_fen=chess.STARTING_FEN,
        white_elo=facts.white_elo,
        black_elo=facts.black_elo,
    )

"""Turns the text of a game into a record that can be replayed in microseconds.

`rookery.pgn.reader` reads the moves. A game with any fault is skipped as a whole, with the reason, because
what remains of it may belong to another game.
"""

from array import array

import chess

from chess_datasets.pgn.games import OVER, PHASES, EndDetector, Game, SkippedGame, pack_move, phase_of
from chess_datasets.pgn.tags import read_facts
from chess_datasets.store.files import Source
from rookery.pgn.rawgame import Defect, RawGame
from rookery.pgn.reader import read_game


def parse_game(raw: RawGame, source: Source, *, chess960: bool = False) -> Game | SkippedGame:
    """Parses a game, or returns why it is skipped. Chess960 games are skipped unless `chess960` is true."""
    raw = raw.checked()
    if raw.defect:
        return skip(raw, source, raw.defect, raw.detail)
    phases, end = bytearray(), EndDetector()

    def add_phase(board: chess.Board, move: chess.Move) -> None:
        phases.append(OVER if end.is_over(board) else PHASES.index(phase_of(board)))

    game = read_game(raw.text, chess960=chess960, on_move=add_phase)
    if game.faults:
        return skip(raw, source, game.faults[0].defect, game.faults[0].detail)
    if not game.moves:
        return skip(raw, source, Defect.NO_MOVES, "no moves")
    facts = read_facts(raw)
    return Game(
        source=source.sha256[:8],
        number=raw.number,
        id=raw.id,
        start_fen=game.board.root().fen(),
        moves=array("H", map(pack_move, game.moves)),
        phases=bytes(phases),
        white_elo=facts.white_elo,
        black_elo=facts.black_elo,
        chess960=game.board.chess960,
    )


def skip(raw: RawGame, source: Source, defect: Defect, detail: str) -> SkippedGame:
    """The record of a skipped game."""
    return SkippedGame(source.path, raw.number, defect, detail, raw.offset)

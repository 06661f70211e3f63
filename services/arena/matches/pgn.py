"""Games as PGN: the opening, every move with its evaluation and the reasoning as comments."""

from collections.abc import Mapping

import chess
import chess.engine
import chess.pgn

from rookery.trace import Outcome
from services.arena.matches.game import ADJUDICATION, ILLEGAL_MOVE, PLY_LIMIT, Game, Turn

_TERMINATIONS = {ILLEGAL_MOVE: "rules infraction", ADJUDICATION: "adjudication", PLY_LIMIT: "adjudication"}
"""The standard's values of the tag Termination that are not `normal` (PGN specification, 9.8.1)."""

_COMMENT = str.maketrans("{}", "()")
_TAG = str.maketrans('"\\', "'/")


def as_pgn(game: Game, versions: Mapping[str, Mapping[str, object]]) -> str:
    """The game as PGN text that ends with an empty line.

    `versions` are the players' descriptions by name, for the tags WhiteVersion and BlackVersion.
    """
    tree = chess.pgn.Game()
    tags = {
        "Event": "Rookery arena",
        "Round": game.pair + 1,
        "White": game.white,
        "Black": game.black,
        "Result": game.result,
        "WhiteVersion": _version(versions.get(game.white, {})),
        "BlackVersion": _version(versions.get(game.black, {})),
        "Opening": game.opening.name,
        "Termination": _TERMINATIONS.get(game.termination, "normal"),
        "TerminationDetails": game.termination,
        "GameId": game.key,
    }
    # python-chess writes tags as they are, and readers differ in how they take a quoted quote.
    tree.headers.update({tag: " ".join(str(value).translate(_TAG).split()) for tag, value in tags.items()})
    if game.opening.fen != chess.STARTING_FEN:
        tree.setup(game.opening.fen)
    node: chess.pgn.GameNode = tree
    for move in game.opening.moves:
        node = node.add_main_variation(chess.Move.from_uci(move))
    for turn in game.turns:
        if turn.move is None:
            node.comment = f"{node.comment} {_comment(turn)}".strip()
        else:
            node = node.add_main_variation(chess.Move.from_uci(turn.move), comment=_comment(turn))
            node.set_eval(_score(turn))
    return tree.accept(chess.pgn.StringExporter(columns=80)) + "\n\n"


def _comment(turn: Turn) -> str:
    """What was wrong with the tries, and the text that the player wrote.

    Braces, which would end the comment, become round brackets. "[%", with which commands such as `[%eval]`
    begin, gets a space, so that a model cannot write them.
    """
    notes = []
    if not turn.legal_at_once:
        failed = ", ".join(outcome for outcome in turn.outcomes if outcome != Outcome.LEGAL)
        consequence = "game forfeited" if turn.move is None else "random move"
        replaced = turn.outcomes[-1] != Outcome.LEGAL
        notes.append(f"({failed}; {consequence})" if replaced else f"({failed})")
    notes += turn.text.translate(_COMMENT).replace("[%", "[ %").split()
    return " ".join(notes)


def _score(turn: Turn) -> chess.engine.PovScore | None:
    if turn.mate is not None:
        return chess.engine.PovScore(chess.engine.Mate(turn.mate), chess.WHITE)
    return None if turn.cp is None else chess.engine.PovScore(chess.engine.Cp(turn.cp), chess.WHITE)


def _version(description: Mapping[str, object]) -> str:
    return "; ".join(f"{name}={value}" for name, value in description.items())

"""Games and counts as in llm_chess: the model plays Black against an opponent that usually moves at random.

A game has no opening, ends at 200 plies, and is lost with the third wrong answer in one turn. Draws are not
claimed. Names and definitions of the counts are those of its tables
(maxim-saplin/llm_chess, `llm_chess.py` and `_logs/aggregate_models_to_csv.py`). There, a model chooses
actions in a dialogue (see the board, list the legal moves, move), as a player with `dialogue=llm-chess` does;
others answer a prompt.
"""

from collections.abc import Sequence

import chess

from arena.matches.game import MatchGame
from rookery.games import PLY_LIMIT, Rules
from rookery.trace import Outcome

RULES = Rules(illegal="retry:2", max_plies=200, claim_draws=False)

_WRONG_MOVES = frozenset({Outcome.ILLEGAL, Outcome.AMBIGUOUS, Outcome.NULL_MOVE})
_VALUES = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9}


def count(games: Sequence[MatchGame], *, dialogue: bool = False) -> dict[str, float] | None:
    """The counts over `games`, in all of which the model is Black; None without games. `dialogue`: it plays
    by dialogues, of which `llm_max_turns` ended without a move.

    Moves are those of both sides; averages of material are weighted by them. `win_loss` is from 0 to 1.
    `game_duration` is the mean share of the 200 plies that the games lasted; 1 for those that reached them.
    """
    if not games:
        return None
    moves = [len(game.turns) for game in games]
    total = sum(moves)
    failed = [
        outcome for game in games for turn in game.turns_of(game.black) for outcome in turn.outcomes
        if outcome != Outcome.LEGAL
    ]  # fmt: skip
    wrong_moves = sum(outcome in _WRONG_MOVES for outcome in failed)
    max_turns = sum(outcome == Outcome.TRUNCATED for outcome in failed) if dialogue else 0
    wrong_actions = len(failed) - wrong_moves - max_turns
    wins, losses = (sum(game.result == result for game in games) for result in ("0-1", "1-0"))
    material = {
        colour: sum(_material(game, colour) * n for game, n in zip(games, moves, strict=True)) / total
        for colour in chess.COLORS
    }
    durations = [
        1.0 if game.termination == PLY_LIMIT else n / RULES.max_plies
        for game, n in zip(games, moves, strict=True)
    ]
    return {
        "total_games": len(games),
        "black_llm_wins": wins,
        "white_rand_wins": losses,
        "draws": len(games) - wins - losses,
        "win_loss": (wins - losses) / len(games) / 2 + 0.5,
        "game_duration": sum(durations) / len(games),
        "llm_total_moves": total,
        "llm_wrong_actions": wrong_actions,
        "llm_wrong_moves": wrong_moves,
        "llm_max_turns": max_turns,
        "wrong_actions_per_100moves": 100 * wrong_actions / total,
        "wrong_moves_per_100moves": 100 * wrong_moves / total,
        "average_moves": total / len(games),
        "llm_avg_material": material[chess.BLACK],
        "rand_avg_material": material[chess.WHITE],
        "material_diff_llm_minus_rand": material[chess.BLACK] - material[chess.WHITE],
    }


def _material(game: MatchGame, colour: chess.Color) -> int:
    """The material of `colour` at the end of the game, in pawns."""
    board = game.opening.board()
    for turn in game.turns:
        if turn.move is not None:
            board.push_uci(turn.move)
    return sum(value * len(board.pieces(piece, colour)) for piece, value in _VALUES.items())

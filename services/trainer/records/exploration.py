"""Whether the policy still explores: how much its answers differ, and which pieces it moves.

A policy that collapses repeats one answer, one candidate or one kind of move. Its reward may still rise.
Also the figures over new positions alone, if the feed repeats others.
"""

import statistics
from collections import Counter
from collections.abc import Sequence

import chess

from rookery.advantages import zero_variance
from rookery.candidates import candidates_of, distinct
from rookery.trace import Move, Outcome, TraceGroup

MOVES, BEST_MOVES = "moves_", "best_moves_"


def exploration(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns how much the answers of a batch differ. Statistics without an answer to count are left out.

    `identical_answers` is the share of answers whose tokens equal those of another one of their group, and
    `distinct_candidates` the share of the moves named before the box that are no repetition. `moves_PIECE`
    are shares of the legal moves, `best_moves_PIECE` those of the engine's best moves at the same positions,
    each counted once for each legal move. `piece_distance` is the total variation distance of the two: half
    the sum of the absolute differences.
    """
    repeated = total = 0
    candidates: list[float] = []
    moved: Counter[int | None] = Counter()
    best: Counter[int | None] = Counter()
    for group in groups:
        board = chess.Board(group.prompt.fen)
        answers = Counter(trace.completion.token_ids for trace in group.traces)
        total += answers.total()
        repeated += sum(count for count in answers.values() if count > 1)
        for trace in group.traces:
            if named := candidates_of(trace.completion.text, board):
                candidates.append(len(distinct(named)) / len(named))
            if trace.verdict.move and trace.verdict.best:
                moved[_piece(board, trace.verdict.move)] += 1
                best[_piece(board, trace.verdict.best)] += 1
    return {
        "identical_answers": repeated / total,
        **({"distinct_candidates": statistics.fmean(candidates)} if candidates else {}),
        **(_pieces(moved, best) if moved else {}),
    }


def of_new_positions(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns means over the groups whose position is not repeated; empty if the feed repeats none.

    Repeated positions are chosen by their rewards, so only these means estimate those of all positions.
    """
    if not any(group.draw for group in groups):
        return {}
    new = [group for group in groups if not (group.draw and group.draw.repeated)]
    share = {"repeated_share": 1 - len(new) / len(groups)}
    if not new:
        return share
    verdicts = [trace.verdict for group in new for trace in group.traces]
    return {
        **share,
        "reward_new": statistics.fmean(verdict.reward for verdict in verdicts),
        "legal_rate_new": statistics.fmean(verdict.outcome is Outcome.LEGAL for verdict in verdicts),
        "zero_variance_new": statistics.fmean(zero_variance(group.rewards) for group in new),
    }


def _pieces(moved: Counter[int | None], best: Counter[int | None]) -> dict[str, float]:
    own, engine = (
        {chess.piece_name(piece): counts[piece] / counts.total() for piece in chess.PIECE_TYPES}
        for counts in (moved, best)
    )
    return {
        **{MOVES + name: share for name, share in own.items()},
        **{BEST_MOVES + name: share for name, share in engine.items()},
        "piece_distance": sum(abs(own[name] - engine[name]) for name in own) / 2,
    }


def _piece(board: chess.Board, move: Move) -> int | None:
    return board.piece_type_at(chess.parse_square(move.uci[:2]))

"""Makes examples of candidate moves, with soft targets from an engine for every legal move.

The answer is `<think>M1 M2 M3</think>\\boxed{M}`, in UCI on the board that the prompt shows. The candidates
are drawn without replacement, by the probabilities below. M is the candidate that the engine ranks best.

A move with win probability W has this probability, where n is the number of legal moves:

    uniform / n + (best if it is the engine's first move) + (1 - best - uniform) * softmax(W / temperature)

A move that mates in n moves counts as if its W were mate / n higher: otherwise, where every move wins, a mate
would be no better than the others. A move outside the engine's lines counts as if its W were 0.1 below the
lowest W of these lines. The draw depends only on the seed and the position.
"""

import logging
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

import chess

from rookery.errors import Quarantined
from rookery.prompt import mover_board, render
from rookery.trace import Evaluation, Position
from rookery.uci import Analysis, Query
from rookery.winprob import win_probability
from services.data.tasks.example import ENGINE_MOVES, Alternatives, Example
from services.data.tasks.rookworld import Searcher, engine_move

logger = logging.getLogger(__name__)

_UNSEEN = 0.1
"""How far below the lowest win probability of the engine's lines any other move counts."""


@dataclass(frozen=True, slots=True)
class CandidateTargets:
    """The number of engine lines and candidates, and the parameters of the formula above."""

    lines: int = 8
    candidates: int = 3
    temperature: float = 0.05
    best: float = 0.3
    uniform: float = 0.1
    mate: float = 0.2


TARGETS = CandidateTargets()


async def engine_moves(
    position: Position, engines: Searcher, *, style: str, nodes: int, targets: CandidateTargets, seed: int = 0
) -> Example | None:
    """The example of a position. A position that kills engines has none, and is logged.

    Raises:
        Unavailable: the engines are not available.
    """
    prompt = render(position, style=style)
    board = chess.Board(prompt.fen)
    # White is to move on the engine's board, so colour makes no difference.
    query = Query(mover_board(prompt.fen).fen(), nodes, lines=min(targets.lines, board.legal_moves.count()))
    try:
        analysis = await engines.search(query)
    except Quarantined as error:
        logger.warning("left out: %s", error)
        return None
    weights = probabilities(board, analysis, targets)
    candidates, alternatives = _draw(weights, targets.candidates, random.Random(f"{seed}:{position.id}"))
    places = {move: place for place, move in enumerate(ranking(board, analysis))}
    best = min(candidates, key=lambda move: places.get(move, len(places)))
    answer = f"<think>{' '.join(candidates)}</think>\\boxed{{{best}}}"
    return Example(
        position.id, ENGINE_MOVES, position.fen, prompt.messages, answer, alternatives=alternatives
    )


def ranking(board: chess.Board, analysis: Analysis) -> list[str]:
    """The first moves of the engine's lines on `board`, best first."""
    return [engine_move(board, line.pv[0]) for line in analysis.lines]


def probabilities(board: chess.Board, analysis: Analysis, targets: CandidateTargets) -> dict[str, float]:
    """The probability of each legal move."""
    judged = {
        move: win_probability(line.evaluation) + _mate(line.evaluation, targets.mate)
        for move, line in zip(ranking(board, analysis), analysis.lines, strict=True)
    }
    unseen, most = min(judged.values()) - _UNSEEN, max(judged.values())
    legal = [move.uci() for move in board.legal_moves]
    soft = [math.exp((judged.get(move, unseen) - most) / targets.temperature) for move in legal]
    share = (1 - targets.best - targets.uniform) / sum(soft)
    weights = {m: targets.uniform / len(legal) + share * s for m, s in zip(legal, soft, strict=True)}
    weights[next(iter(judged))] += targets.best
    return weights


def _mate(score: Evaluation, worth: float) -> float:
    return worth / score.mate if score.mate is not None and score.mate > 0 else 0.0


def _draw(
    weights: Mapping[str, float], count: int, rng: random.Random
) -> tuple[list[str], tuple[Alternatives, ...]]:
    """`count` moves without replacement, and where the answer has each of them, with what was left then."""
    left, drawn, alternatives = dict(weights), list[str](), list[Alternatives]()
    start = len("<think>")
    for _ in range(min(count, len(weights))):
        point, move = rng.random() * sum(left.values()), ""
        for move, weight in left.items():  # noqa: B007 -- rounding may leave the last one
            point -= weight
            if point < 0:
                break
        rounded = {m: float(f"{weight:.4g}") for m, weight in left.items()}
        alternatives.append(Alternatives(start, start + len(move), tuple(rounded), tuple(rounded.values())))
        start += len(move) + 1
        drawn.append(move)
        del left[move]
    return drawn, tuple(alternatives)

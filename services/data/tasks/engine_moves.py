"""Makes examples of candidate moves, with soft targets from an engine for every legal move.

The answer is `<think>M1 M2 M3</think>\\boxed{M}`, in UCI on the board that the prompt shows. The candidates
are drawn without replacement, by the probabilities below. M is the candidate that the engine ranks best.

A move with win probability W has this probability, where n is the number of legal moves:

    uniform / n + (best if it is the engine's first move) + (1 - best - uniform) * softmax(W / temperature)

A move outside the engine's lines counts as if its W were 0.1 below the lowest W of these lines. The draw
depends only on the seed and the position.
"""

import logging
import math
import random
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass

import chess

from rookery.errors import Quarantined
from rookery.prompt import render
from rookery.trace import Position, Prompt
from rookery.uci import Analysis, Query
from rookery.winprob import win_probability
from services.data.jobs.concurrency import in_order
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


TARGETS = CandidateTargets()


async def engine_moves(
    positions: Iterable[Position],
    engines: Searcher,
    *,
    style: str,
    nodes: int,
    targets: CandidateTargets,
    seed: int = 0,
    ahead: int = 64,
) -> AsyncGenerator[Example]:
    """Yields one example per position, in order. A position that kills engines is left out, with a warning.

    Raises:
        Unavailable: the engines are not available.
    """
    work = (_example(position, engines, style, nodes, targets, seed) for position in positions)
    async for example in in_order(work, ahead=ahead):
        if example is not None:
            yield example


async def _example(
    position: Position, engines: Searcher, style: str, nodes: int, targets: CandidateTargets, seed: int
) -> Example | None:
    prompt = render(position, style=style)
    board = chess.Board(prompt.fen)
    shown = board if board.turn else board.mirror()  # White to move, so colour makes no difference
    lines = min(targets.lines, board.legal_moves.count())
    try:
        analysis = await engines.search(Query(shown.fen(), nodes, lines=lines))
    except Quarantined as error:
        logger.warning("left out: %s", error)
        return None
    weights = probabilities(board, analysis, targets)
    rng = random.Random(f"{seed}:{position.id}")
    return example_of(position, prompt, weights, ranking(board, analysis), targets.candidates, rng)


def ranking(board: chess.Board, analysis: Analysis) -> list[str]:
    """The first moves of the engine's lines on `board`, best first."""
    return [engine_move(board, line.pv[0]) for line in analysis.lines]


def probabilities(board: chess.Board, analysis: Analysis, targets: CandidateTargets) -> dict[str, float]:
    """The probability of each legal move."""
    judged = {
        move: win_probability(line.evaluation)
        for move, line in zip(ranking(board, analysis), analysis.lines, strict=True)
    }
    unseen, most = min(judged.values()) - _UNSEEN, max(judged.values())
    legal = [move.uci() for move in board.legal_moves]
    soft = [math.exp((judged.get(move, unseen) - most) / targets.temperature) for move in legal]
    share = (1 - targets.best - targets.uniform) / sum(soft)
    weights = {m: targets.uniform / len(legal) + share * s for m, s in zip(legal, soft, strict=True)}
    weights[next(iter(judged))] += targets.best
    return weights


def example_of(
    position: Position,
    prompt: Prompt,
    weights: Mapping[str, float],
    ranked: list[str],
    candidates: int,
    rng: random.Random,
) -> Example:
    """Draws the candidates and writes the answer."""
    left, drawn, alternatives = dict(weights), list[str](), list[Alternatives]()
    text = "<think>"
    for _ in range(min(candidates, len(weights))):
        move = _drawn(left, rng)
        start = len(text) + bool(drawn)
        rounded = {m: round(weight, 4) for m, weight in left.items()}
        alternatives.append(Alternatives(start, start + len(move), tuple(rounded), tuple(rounded.values())))
        text += f" {move}" if drawn else move
        drawn.append(move)
        del left[move]
    places = {move: place for place, move in enumerate(ranked)}
    best = min(drawn, key=lambda move: places.get(move, len(places)))
    answer = f"{text}</think>\\boxed{{{best}}}"
    return Example(
        position.id, ENGINE_MOVES, position.fen, prompt.messages, answer, alternatives=tuple(alternatives)
    )


def _drawn(weights: Mapping[str, float], rng: random.Random) -> str:
    point = rng.random() * sum(weights.values())
    for move, weight in weights.items():
        point -= weight
        if point < 0:
            return move
    return next(reversed(list(weights)))

"""Candidate moves and the best of them, with soft targets from an engine for every legal move.

The answer is `<think>M1 M2 M3</think>\\boxed{M}`, in UCI on the board that the prompt shows. Each candidate
is drawn by its probability from the legal moves not drawn before it. M is the one that the engine ranks best.
The probability of a move with win chance W, where the engine's best lines end with the chance L:

    uniform / legal moves + best [is it the engine's first] + (1 - best - uniform) softmax(W / temperature)

A move outside these lines counts as L - 0.1. What is drawn depends on the seed and the position alone.
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
from services.data.concurrency import in_order
from services.data.tasks.example import ENGINE_MOVES, Alternatives, Example
from services.data.tasks.rookworld import Engines, seen_by

logger = logging.getLogger(__name__)

_UNSEEN = 0.1
"""A move outside the engine's lines counts as this much win chance worse than the worst of them."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The number of engine lines and the parameters of the formula above."""

    lines: int = 8
    candidates: int = 3
    temperature: float = 0.05
    best: float = 0.3
    uniform: float = 0.1


TARGETS = Targets()


async def engine_moves(
    positions: Iterable[Position],
    engines: Engines,
    *,
    style: str,
    nodes: int,
    targets: Targets,
    seed: int = 0,
    ahead: int = 64,
) -> AsyncGenerator[Example]:
    """One example per position, in order. A position that kills engines is left out, with a warning.

    Raises:
        Unavailable: the engines are not available.
    """
    work = (_example(position, engines, style, nodes, targets, seed) for position in positions)
    async for example in in_order(work, ahead=ahead):
        if example is not None:
            yield example


async def _example(
    position: Position, engines: Engines, style: str, nodes: int, targets: Targets, seed: int
) -> Example | None:
    prompt = render(position, style=style)
    board = chess.Board(prompt.fen)
    shown = board if board.turn else board.mirror()  # so that the colour makes no difference
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
    return [seen_by(board, line.pv[0]) for line in analysis.lines]


def probabilities(board: chess.Board, analysis: Analysis, targets: Targets) -> dict[str, float]:
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

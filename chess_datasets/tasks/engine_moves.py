"""Makes examples of candidate moves, with soft targets from an engine for every legal move.

The answer is `<think>M1 M2 M3</think>\\boxed{M}`, in UCI or SAN on the board that the prompt shows. The
candidates are drawn without replacement, by the probabilities below. M is the one that the engine ranks best.

A move with win probability W has this probability, where n is the number of legal moves:

    uniform / n + (best if it is the engine's first move) + (1 - best - uniform) * softmax(W / temperature)

A move that mates in n moves counts as if its W were mate / n higher: otherwise, where every move wins, a mate
would be no better than the others. A move outside the engine's lines counts as if its W were 0.1 below the
lowest W of these lines. The draw depends only on the seed and the position.

With `remarks`, the answer is also in words, each of them true:

    <think>The knight on f3 attacks the pawn on e5. Material is equal.
    M1 M2 M3</think>M attacks the queen on d6. \\boxed{M}

Every sentence is drawn from all that `commentary` finds to say there, a weightier finding more often, and
these are its soft targets.
"""

import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import chess

from chess_datasets.tasks.example import ENGINE_MOVES, Alternatives, Example
from chess_datasets.tasks.rookworld import Searcher, engine_move
from commentary import Statement, move_statements, position_statements
from rookery.errors import Quarantined
from rookery.prompt import Notation, mover_board, render, written
from rookery.trace import Position
from rookery.uci import Analysis, Query
from rookery.winprob import win_probability

logger = logging.getLogger(__name__)

_UNSEEN = 0.1
"""How far below the lowest win probability of the engine's lines any other move counts."""

_VOICE = "notebook"
_LEAST_WEIGHT, _MOST_WEIGHT = 0.3, 6.0
"""Bounds of a finding's weight in the draw: a check has 30, which would silence everything else."""


@dataclass(frozen=True, slots=True)
class CandidateTargets:
    """The numbers of engine lines, candidates and remarks, and the parameters of the formula above."""

    lines: int = 8
    candidates: int = 3
    temperature: float = 0.05
    best: float = 0.3
    uniform: float = 0.1
    mate: float = 0.2
    remarks: int = 0


TARGETS = CandidateTargets()


async def engine_moves(
    position: Position,
    engines: Searcher,
    *,
    style: str,
    nodes: int,
    targets: CandidateTargets,
    seed: int = 0,
    box: Notation = "uci",
) -> Example | None:
    """The example of a position, with its moves in the notation `box`. A position that kills engines has
    none, and is logged. Raises `Unavailable` if the engines are not available."""
    prompt = render(position, style=style)
    board = chess.Board(prompt.fen)
    # White is to move on the engine's board, so colour makes no difference.
    query = Query(mover_board(prompt.fen).fen(), nodes, lines=min(targets.lines, board.legal_moves.count()))
    try:
        analysis = await engines.search(query)
    except Quarantined as error:
        logger.warning("left out: %s", error)
        return None
    answer = _compose(board, analysis, targets, seed=f"{seed}:{position.id}", box=box)
    alternatives = tuple(answer.alternatives)
    return Example(
        position.id, ENGINE_MOVES, position.fen, prompt.messages, answer.text, alternatives=alternatives
    )


def _compose(
    board: chess.Board, analysis: Analysis, targets: CandidateTargets, *, seed: str, box: Notation
) -> "_Answer":
    answer, drawn = _Answer("<think>"), list[str]()
    moves = {written(board, move, box): move for move in board.legal_moves}
    weights = probabilities(board, analysis, targets)
    remaining = {text: weights[move.uci()] for text, move in moves.items()}
    rng, words = random.Random(seed), random.Random(f"{seed}:remarks")
    if targets.remarks:
        about_position = position_statements(board, words, voice=_VOICE)
        # A mate that is announced would be the first candidate.
        remarks = [s for s in about_position if s.finding.concept.name != "mate in one"]
        _add_remarks(answer, remarks, targets.remarks, words)
        answer.text += "\n"
    for _ in range(min(targets.candidates, len(remaining))):
        answer.text += " " if drawn else ""
        drawn.append(answer.draw(remaining, rng))
        del remaining[drawn[-1]]
    places = {move: place for place, move in enumerate(ranking(board, analysis))}
    best = min(drawn, key=lambda text: places.get(moves[text].uci(), len(places)))
    answer.text += "</think>"
    if targets.remarks and (reasons := move_statements(board, moves[best], words, voice=_VOICE)):
        answer.text += best
        _add_remarks(answer, reasons, 1, words, gap=" ")
        answer.text += " "
    answer.text += f"\\boxed{{{best}}}"
    return answer


def ranking(board: chess.Board, analysis: Analysis) -> list[str]:
    """The first moves of the engine's lines on `board`, best first."""
    return [engine_move(board, line.pv[0]) for line in analysis.lines]


def probabilities(board: chess.Board, analysis: Analysis, targets: CandidateTargets) -> dict[str, float]:
    """The probability of each legal move."""
    judged: dict[str, float] = {}
    for move, line in zip(ranking(board, analysis), analysis.lines, strict=True):
        mate = line.evaluation.mate or 0
        judged[move] = win_probability(line.evaluation) + (targets.mate / mate if mate > 0 else 0.0)
    unseen, most = min(judged.values()) - _UNSEEN, max(judged.values())
    legal = [move.uci() for move in board.legal_moves]
    soft = [math.exp((judged.get(move, unseen) - most) / targets.temperature) for move in legal]
    share = (1 - targets.best - targets.uniform) / sum(soft)
    weights = {m: targets.uniform / len(legal) + share * s for m, s in zip(legal, soft, strict=True)}
    weights[next(iter(judged))] += targets.best
    return weights


@dataclass(slots=True)
class _Answer:
    """An answer that is being written, with the alternatives to each drawn part of it."""

    text: str
    alternatives: list[Alternatives] = field(default_factory=list)

    def draw(self, weights: Mapping[str, float], rng: random.Random) -> str:
        """Adds one of the texts to the answer, and returns it."""
        point, chosen = rng.random() * sum(weights.values()), ""
        for chosen, weight in weights.items():  # noqa: B007 -- rounding may leave the last one
            point -= weight
            if point < 0:
                break
        rounded = {text: float(f"{weight:.4g}") for text, weight in weights.items()}
        start, self.text = len(self.text), self.text + chosen
        self.alternatives.append(Alternatives(start, len(self.text), tuple(rounded), tuple(rounded.values())))
        return chosen


def _add_remarks(
    answer: _Answer, statements: Sequence[Statement], most: int, rng: random.Random, *, gap: str = ""
) -> None:
    """Adds up to `most` sentences to the answer, after `gap`. None of them repeats another one."""
    remaining = list(statements)
    for _ in range(most):
        if not remaining:
            break
        weights, statement_of = dict[str, float](), dict[str, Statement]()
        for statement in remaining:
            bounded = min(_MOST_WEIGHT, max(_LEAST_WEIGHT, statement.finding.weight))
            for text in statement.sentences:
                # A token of a tokenizer of words begins with the space before it.
                statement_of.setdefault(gap + text, statement)
                weights[gap + text] = weights.get(gap + text, 0.0) + bounded / len(statement.sentences)
        text = answer.draw(weights, rng)
        drawn, text = statement_of[text], text.removeprefix(gap)
        remaining = [s for s in remaining if not s.repeats(drawn) and text not in s.sentences]
        gap = " "

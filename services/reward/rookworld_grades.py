"""Grades answers to the RookWorld tasks in six steps, by the rules and the engine, never by labels.

* -0.3  the answer is not in the task's format
*  0.2  only the format is right
*  0.4  some fields are right
*  0.6  most fields are right
*  0.8  nearly everything is right
*  1.0  perfect

Nothing is searched here. To grade a `P:` answer, the caller passes the engine's results.

A `P:` answer has three fields: best move, candidates and evaluations. Each is right or wrong. If the best
move is not legal, the grade is 0.2. If it is legal, the grade is 0.4 with at most one field right, 0.6 with
two and 0.8 with three. It is 1.0 if every evaluation is right and neither the best move nor the candidates
lose more than `EXACT`.

The best move and the candidates are judged by regret, so a move as good as the engine's own counts as much.
Counting how many of the engine's moves were named would instead reward guessing which of two equal moves
the engine ranked fifth. Candidates are compared rank by rank with the engine's five. A place that is empty,
or holds an illegal or a repeated move, counts as a loss of 1.0, so an answer that names only one good move
gets a fifth of the field. An evaluation is right if it is within `TOLERANCE` of win probability, which near
equality is half a pawn.

An `A:` answer must have the right FEN: with one wrong character the grade is 0.2, whatever the other fields
say, because those are the same in 99 lines of 100. The grade then falls by 0.2 with each wrong field. After
an illegal move the FEN does not change and could be copied, so the `truncated` flag must be right too.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import chess

from rookery import rookworld, rookworld_env
from rookery.answers import after_reasoning
from rookery.trace import Evaluation, Outcome
from rookery.winprob import LICHESS_K, win_probability

VERSION = 2
"""Increased whenever a grade changes."""

INVALID = -0.3
FORMAT = 0.2
SOME = 0.4
MOST = 0.6
NEAR = 0.8
PERFECT = 1.0

TOLERANCE = 0.05
"""In win probability. Lichess does not call a smaller loss an inaccuracy (lichess-org/lila, Advice.scala: a
tenth on its scale of [-1, 1])."""

SOUND_SHARE = 0.8
"""The share of evaluations that must be right: one in five may be wrong."""

EXACT = 0.01
"""In win probability: ten centipawns near equality, about the accuracy of a search of some thousand nodes."""


@dataclass(frozen=True, slots=True)
class Grade:
    """An answer's reward and the reasons. `components` has a number in [0, 1] for each field."""

    reward: float
    outcome: Outcome
    components: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyAnswerOnBoard:
    """A well-formed `P:` answer on its board. Moves that are not legal are None."""

    moves: tuple[chess.Move | None, ...]
    evals: tuple[Evaluation, ...]
    best: chess.Move | None

    @property
    def named(self) -> tuple[chess.Move, ...]:
        """The distinct legal moves in the answer, in order. The engine must search each of them."""
        return tuple(_distinct((*self.moves, self.best)))


def read_policy(response: str, board: chess.Board) -> PolicyAnswerOnBoard | None:
    """The `P:` answer in `response`, after its reasoning, or None if there is no well-formed one."""
    answer = rookworld.read_policy_answer(after_reasoning(response))
    if answer is None:
        return None
    return PolicyAnswerOnBoard(
        moves=tuple(_legal(move, board) for move in answer.moves),
        evals=tuple(map(rookworld.from_pawns, answer.evals)),
        best=_legal(answer.best, board),
    )


def grade_policy(
    answer: PolicyAnswerOnBoard | None,
    wins: Mapping[chess.Move, float],
    *,
    top: Collection[chess.Move],
    k: float = LICHESS_K,
) -> Grade:
    """The grade of a `P:` answer, or of a text that is none. Without a legal best move, it needs no search.

    `wins` are the win probabilities of the moves that the answer names and of `top`: the engine's five
    best moves, or all legal moves if there are fewer. All are from one engine and node limit.
    """
    if answer is None:
        return Grade(INVALID, Outcome.UNPARSABLE, {"format": 0.0})
    if answer.best is None:
        return Grade(FORMAT, Outcome.ILLEGAL, {"format": 1.0})
    ranked = sorted((wins[move] for move in top), reverse=True)
    places = max(len(ranked), len(answer.moves))
    regret = max(0.0, ranked[0] - wins[answer.best])
    named = _distinct(answer.moves)
    answered = sorted((wins[move] for move in named), reverse=True)
    losses = [max(0.0, best - win) for best, win in zip(ranked, answered, strict=False)]
    loss = (sum(losses) + places - len(losses)) / places
    # Of a move that is named twice, the first evaluation counts.
    evals = dict(zip(reversed(answer.moves), reversed(answer.evals), strict=True))
    claimed = {move: win_probability(evals[move], k=k) for move in named}
    sound = sum(abs(claimed[move] - wins[move]) <= TOLERANCE for move in named) / places
    components = {"format": 1.0, "best": 1.0 - regret, "candidates": 1.0 - loss, "evaluations": sound}
    return Grade(_step(regret, loss, sound), Outcome.LEGAL, components)


def _step(regret: float, loss: float, sound: float) -> float:
    if regret <= EXACT and loss <= EXACT and sound == 1.0:
        return PERFECT
    # With no field right the step is still SOME, because the best move is legal.
    right = (regret <= TOLERANCE) + (loss <= TOLERANCE) + (sound >= SOUND_SHARE)
    return (SOME, SOME, MOST, NEAR)[right]


def grade_state(fen: str, move: str, response: str) -> Grade:
    """The grade of an `A:` answer about `move`, legal or not, on `fen`. Raises `InvalidInput` if `fen` is not
    a valid FEN, or `move` is not written in UCI."""
    truth = rookworld_env.step(fen, move).answer
    answer = rookworld.read_state_answer(after_reasoning(response))
    if answer is None:
        return Grade(INVALID, Outcome.UNPARSABLE, {"format": 0.0})
    fields = {
        "fen": answer.next_fen == truth.next_fen,
        "reward": answer.reward == truth.reward,
        "terminated": answer.terminated == truth.terminated,
        "truncated": answer.truncated == truth.truncated,
    }
    copied = truth.truncated and not answer.truncated
    wrong = sum(not right for right in fields.values())
    reward = (PERFECT, NEAR, MOST, SOME)[wrong] if fields["fen"] and not copied else FORMAT
    return Grade(
        reward, Outcome.LEGAL, {"format": 1.0, **{name: float(is_right) for name, is_right in fields.items()}}
    )


def _distinct(moves: Sequence[chess.Move | None]) -> list[chess.Move]:
    return list(dict.fromkeys(move for move in moves if move is not None))


def _legal(uci: str, board: chess.Board) -> chess.Move | None:
    try:
        return board.parse_uci(uci)
    except ValueError:
        return None

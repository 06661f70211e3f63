"""The RookWorld tasks on a scale of six steps, against the rules and the engine, never against labels.

* -0.3  no answer in the task's format
*  0.2  the format and nothing else
*  0.4  some of it is right
*  0.6  most of it
*  0.8  all of it, nearly
*  1.0  perfect

Nothing is searched here: whoever grades a `P:` answer brings the engine's opinion as a `PolicyTruth`.

`P:` has three fields, each right or wrong, and its best move must be legal, or the format is all there
is to pay for. The best move and the candidates are judged by regret, so that a move as good as the
engine's own is as good: recall of the engine's list would pay for guessing which of two equal moves
came fifth. Candidates are compared rank by rank with the engine's five, and a place left empty, or
filled with an illegal move or one named already, counts as lost outright: one safe move is a fifth of
the field. An evaluation is right within `TOLERANCE` of win probability, which near equality is half a
pawn.

`A:` is worth its FEN. A board that is wrong by one character is wrong, whatever the flags say, which
are the same in 99 lines of 100. Where the move is illegal and the board stays as it was, the flag that
says so takes the FEN's place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import chess

from rookery import rookworld, rookworld_env
from rookery.trace import Evaluation, Outcome
from services.reward.parse import after_reasoning

VERSION = 1
"""Raised whenever a number changes."""

TASKS = ("P", "A")

INVALID = -0.3
FORMAT = 0.2
SOME = 0.4
MOST = 0.6
NEAR = 0.8
PERFECT = 1.0

TOLERANCE = 0.05
"""Of win probability: less is not even an inaccuracy (lichess-org/lila, Advice.scala: a tenth of [-1, 1])."""

SOUND_SHARE = 0.8
"""Of the evaluations: one in five may be off."""

EXACT = 0.01
"""Of win probability: ten centipawns near equality, as sure as some thousand nodes are."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What an answer earns and why. `components` are shares in [0, 1], for weighing and for watching."""

    reward: float
    outcome: Outcome
    components: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """A well-formed `P:` answer on its board. Moves that are not legal are None."""

    moves: tuple[chess.Move | None, ...]
    evals: tuple[Evaluation, ...]
    best: chess.Move | None

    @property
    def named(self) -> tuple[chess.Move, ...]:
        """The distinct legal moves in it, in order: what the engine must be asked about."""
        return tuple(_distinct((*self.moves, self.best)))


@dataclass(frozen=True, slots=True)
class PolicyTruth:
    """The engine's opinion in win probabilities of the side to move, all from one engine and limit.

    `top` is its own list: five moves, or all that are legal. `wins` holds at least the moves an answer
    names beside them. `win` reads an evaluation that the answer claims.
    """

    top: Mapping[chess.Move, float]
    wins: Mapping[chess.Move, float]
    win: Callable[[Evaluation], float]


def read_policy(response: str, board: chess.Board) -> PolicyAnswer | None:
    """The `P:` answer in what a model wrote, without its reasoning; None when it is not one."""
    answer = rookworld.read_policy_answer(after_reasoning(response))
    if answer is None:
        return None
    return PolicyAnswer(
        moves=tuple(_legal(move, board) for move in answer.moves),
        evals=tuple(map(rookworld.from_pawns, answer.evals)),
        best=_legal(answer.best, board),
    )


def refuse_policy(answer: PolicyAnswer | None) -> Grade | None:
    """The grade of an answer that no engine need be asked about; None when one must."""
    if answer is None:
        return Grade(INVALID, Outcome.UNPARSABLE, {"format": 0.0})
    if answer.best is None:
        return Grade(FORMAT, Outcome.ILLEGAL, {"format": 1.0})
    return None


def grade_policy(answer: PolicyAnswer, truth: PolicyTruth) -> Grade:
    """The grade of a `P:` answer whose best move is legal.

    Raises:
        ValueError: it is not; `refuse_policy` has its grade.
    """
    if answer.best is None:
        raise ValueError(f"an answer without a legal best move: {answer!r}")
    wins = {**truth.wins, **truth.top}  # one move, one opinion: the engine's own moves regret nothing
    regret = max(0.0, max(truth.top.values()) - wins[answer.best])
    loss = _candidates_loss(answer, truth.top, wins)
    sound = _sound_evaluations(answer, truth, wins)
    components = {"format": 1.0, "best": 1.0 - regret, "candidates": 1.0 - loss, "evaluations": sound}
    return Grade(_step(regret, loss, sound), Outcome.LEGAL, components)


def _step(regret: float, loss: float, sound: float) -> float:
    if regret <= EXACT and loss <= EXACT and sound == 1.0:
        return PERFECT
    right = (regret <= TOLERANCE) + (loss <= TOLERANCE) + (sound >= SOUND_SHARE)
    return (SOME, SOME, MOST, NEAR)[right]


def _candidates_loss(
    answer: PolicyAnswer, top: Mapping[chess.Move, float], wins: Mapping[chess.Move, float]
) -> float:
    """Win probability lost against the engine's list, in the mean over the places of either."""
    ranked = sorted(top.values(), reverse=True)
    named = sorted((wins[move] for move in _distinct(answer.moves)), reverse=True)
    losses = [max(0.0, win - mine) for win, mine in zip(ranked, named, strict=False)]
    places = max(len(ranked), len(answer.moves))
    return (sum(losses) + places - len(losses)) / places


def _sound_evaluations(answer: PolicyAnswer, truth: PolicyTruth, wins: Mapping[chess.Move, float]) -> float:
    """The share of those same places with a move and an evaluation that is right."""
    first = dict(zip(reversed(answer.moves), reversed(answer.evals), strict=True))
    sound = [
        move for move in _distinct(answer.moves) if abs(truth.win(first[move]) - wins[move]) <= TOLERANCE
    ]
    return len(sound) / max(len(truth.top), len(answer.moves))


def grade_state(fen: str, move: str, response: str) -> Grade:
    """The grade of an `A:` answer about `move`, legal or not, on `fen`.

    Raises:
        InvalidInput: `fen` is no FEN, or `move` is not written in UCI.
    """
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

"""Preference pairs: two moves in one position, the engine's preferred to a weaker one.

The weaker move is the policy's own, if it plays one. Otherwise it is the best of those random legal moves
that are worse than the engine's, so it is mediocre rather than absurd. Both answers have the same bare form,
so that a reward model learns about moves and not about style. This module makes no calls: its callers get the
verdicts from the reward service.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import chess

from chess_datasets.positions.distinct import position_key
from chess_datasets.store.parquet import Kind
from rookery.clients import ScoreItem
from rookery.errors import InvalidInput, RookeryError
from rookery.prompt import GAME_TASK, render, task_of
from rookery.trace import Completion, Message, Move, Phase, Position, Prompt, Verdict


class Origin(StrEnum):
    """The origin of a rejected move."""

    POLICY = "policy"
    SAMPLED = "sampled"


class NoPair(StrEnum):
    """The reason why a position gives no pair."""

    NO_WEAKER_MOVE = "no_weaker_move"
    REFUSED = "refused"
    IN_EXAM = "in_exam"


@dataclass(frozen=True, slots=True)
class PairRecipe:
    """The settings that determine the pairs, besides the positions, the policy and the engine. Raises
    `InvalidInput` if the gaps are not in order, `min_gap` is not above 0, or one of the two styles mirrors
    the board and the other does not."""

    seed: int = 0
    style: str = "mover-squares"
    policy_style: str = ""
    candidates: int = 4
    min_gap: float = 0.05
    max_gap: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.min_gap <= self.max_gap:
            raise InvalidInput(
                f"gaps from {self.min_gap} to {self.max_gap}: the least must be above 0 and below the most"
            )
        if self.style.startswith("mover-") != self.asked_style.startswith("mover-"):
            raise InvalidInput(
                f"styles {self.style!r} and {self.asked_style!r} show different boards: one mirrors it"
            )

    @property
    def asked_style(self) -> str:
        return self.policy_style or self.style


@dataclass(frozen=True, slots=True)
class Pair:
    """One comparison. `prompt`, `chosen` and `rejected` are the columns that preference trainers read. Win
    probabilities are for the side to move on `fen`, the board that the prompt shows."""

    prompt: tuple[Message, ...]
    chosen: tuple[Message, ...]
    rejected: tuple[Message, ...]
    id: str
    fen: str
    phase: Phase
    game_id: str
    chosen_move: Move
    rejected_move: Move
    win_chosen: float
    win_rejected: float
    gap: float
    origin: Origin
    policy: str
    """The model that played the rejected move; empty if it is a random legal move."""
    policy_text: str
    """The policy's whole completion; empty if the move is a random legal one."""
    reward_version: str


PAIRS = Kind("pairs", Pair)


@dataclass(frozen=True, slots=True)
class PairRequest:
    """A position and the moves to score: the policy's answers, and random legal moves in UCI (`drawn`)."""

    number: int
    position: Position
    prompt: Prompt
    answers: tuple[Completion, ...]
    drawn: tuple[str, ...]
    policy: str = ""
    task: str = ""
    """The reward service's task for `answers`."""

    def items(self) -> list[ScoreItem]:
        """The items to send to the reward service: first the policy's answers, then the random moves."""
        items = [
            ScoreItem(self.prompt.fen, answer.text, truncated=answer.truncated, task=self.task)
            for answer in self.answers
        ]
        return items + [ScoreItem(self.prompt.fen, _boxed(move)) for move in self.drawn]


def pair_request(
    number: int,
    position: Position,
    recipe: PairRecipe,
    *,
    answers: Sequence[Completion] = (),
    policy: str = "",
) -> PairRequest:
    """The request for a position. The random moves depend only on the position, the seed and the number."""
    prompt = render(position, style=recipe.style)
    moves = sorted(move.uci() for move in chess.Board(prompt.fen).legal_moves)
    rng = random.Random(f"{recipe.seed}:{number}:moves")
    drawn = tuple(rng.sample(moves, min(recipe.candidates, len(moves))))
    task = task_of(position, style=recipe.asked_style)
    moves_only = task if task == GAME_TASK else ""  # RookWorld's lines have no regret
    return PairRequest(
        number, position, prompt, answers=tuple(answers), drawn=drawn, policy=policy, task=moves_only
    )


def pair_of(
    request: PairRequest, slots: Sequence[Verdict | RookeryError], recipe: PairRecipe
) -> Pair | NoPair:
    """The pair that follows from the verdicts on the request's items, or the reason why there is none."""
    if any(isinstance(slot, RookeryError) for slot in slots):
        return NoPair.REFUSED
    verdicts = [slot for slot in slots if isinstance(slot, Verdict)]
    answer_count = len(request.answers)
    index = _most_frequent(verdicts[:answer_count], recipe)
    if index is not None:
        return _pair(request, verdicts[index], text=request.answers[index].text)
    weaker = [verdict for verdict in verdicts[answer_count:] if _is_weaker(verdict, recipe)]
    if not weaker:
        return NoPair.NO_WEAKER_MOVE
    return _pair(request, min(weaker, key=lambda verdict: verdict.regret or 0.0), text=None)


def _most_frequent(verdicts: Sequence[Verdict], recipe: PairRecipe) -> int | None:
    """The index of the first answer with the policy's most frequent weaker move; None if there is none."""
    weaker = [(index, v.move.uci) for index, v in enumerate(verdicts) if v.move and _is_weaker(v, recipe)]
    if not weaker:
        return None
    ((most, _),) = Counter(move for _, move in weaker).most_common(1)
    return next(index for index, move in weaker if move == most)


def _is_weaker(verdict: Verdict, recipe: PairRecipe) -> bool:
    return verdict.regret is not None and recipe.min_gap <= verdict.regret <= recipe.max_gap


def _pair(request: PairRequest, verdict: Verdict, *, text: str | None) -> Pair:
    best, played = verdict.best, verdict.move
    if best is None or played is None or verdict.win_before is None or verdict.win_after is None:
        raise ValueError(f"a verdict without moves has no regret: {verdict}")
    return Pair(
        prompt=request.prompt.messages,
        chosen=_answer(best),
        rejected=_answer(played),
        id=f"{request.position.id}:{played.uci}",
        fen=request.prompt.fen,
        phase=request.position.phase,
        game_id=request.position.game_id,
        chosen_move=best,
        rejected_move=played,
        win_chosen=verdict.win_before,
        win_rejected=verdict.win_after,
        gap=verdict.regret or 0.0,
        origin=Origin.SAMPLED if text is None else Origin.POLICY,
        policy="" if text is None else request.policy,
        policy_text=text or "",
        reward_version=verdict.reward_version,
    )


def _answer(move: Move) -> tuple[Message, ...]:
    return (Message("assistant", _boxed(move.uci)),)


def _boxed(move: str) -> str:
    return f"\\boxed{{{move}}}"


def without_repeats(pairs: Iterable[Pair], *, seen: set[int]) -> Iterator[Pair]:
    """Yields the pairs whose position did not occur before, mirrored or not. Adds their keys to `seen`."""
    for pair in pairs:
        key = position_key(pair.fen)
        if key not in seen:
            seen.add(key)
            yield pair

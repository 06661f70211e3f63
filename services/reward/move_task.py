"""The tasks `move` and `game`: reads an answer as a move, and judges it by the terms of its scheme.

The terms of a scheme ask a `MoveEvidence` for what they look at. What needs an engine, a model or a user's
function is fetched before, once for all answers to a position.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import chess

from commentary import TextReading
from rookery import notation
from rookery.answers import before_answer, extract, first_line
from rookery.candidates import StatedEvaluation, best_stated, stated_evaluations
from rookery.engines import RequestQueue
from rookery.errors import InvalidInput, PeerFault, RookeryError, free_frames
from rookery.notation import NamedMove, named_moves, read_move
from rookery.prompt import GAME_TASK
from rookery.schemes import Evidence, Scheme, Source, find_scheme
from rookery.trace import Evaluation, Outcome, ProcessReward, ScoreItem, Verdict
from services.reward.custom_schemes import CustomTerm
from services.reward.position import JudgedPosition
from services.reward.reward_model import ModelScores, RewardModel
from services.reward.searches import Result, Searches, Values
from services.reward.truth import Influences, influence_of, read_reasoning, reader_id, sentences_of, truth_of

REASONING_CHARS = 10_000
"""Characters of the reasoning in which candidates are looked for, so that a long text does not take long."""


@dataclass(frozen=True, slots=True, eq=False)
class MoveAnswer:
    """An answer with a legal move.

    `named` are the moves that the scheme looks at in the reasoning, `candidates` the different legal ones.
    `stated` are the evaluations in the text by move (UCI), if the scheme needs them: of the candidates, if it
    looks at candidates.
    `reading` is what the reasoning says about the board, if the scheme needs it, and `influences` what its
    sentences earn for their effects.
    """

    item: ScoreItem
    position: JudgedPosition
    move: chess.Move
    scheme: Scheme
    reward_version: str
    named: tuple[NamedMove, ...]
    candidates: tuple[chess.Move, ...]
    stated: Mapping[str, StatedEvaluation]
    reading: TextReading
    influences: Influences


class EngineEvidence(Evidence):
    """What the engine says of a move. To ask for what could not be searched raises its `RookeryError`."""

    def __init__(self, values: Values, move: chess.Move) -> None:
        self._values, self._value = values, values[move]
        self.win_best, self.win_played = values.best.win, self._value.win

    @property
    def score(self) -> Evaluation:
        return self._value.evaluation

    @property
    def win_worst(self) -> float:
        return min(value.win for value in self._values.values())


class MoveEvidence(EngineEvidence):
    """All that terms ask of an answer. `scores` are the model's, `custom` the values of users' functions."""

    def __init__(
        self,
        answer: MoveAnswer,
        values: Values,
        *,
        scores: ModelScores | PeerFault,
        custom: Mapping[MoveAnswer, Mapping[str, float]],
    ) -> None:
        super().__init__(values, answer.move)
        self.response = answer.item.response
        self._answer, self._scores, self._custom = answer, scores, custom

    @property
    def wins_named(self) -> Sequence[float]:
        return [self._values[move].win for move in self._answer.candidates]

    @property
    def stated_errors(self) -> Sequence[float]:
        return [
            abs(stated.win - self._values[move].win)
            if (stated := self._answer.stated.get(move.uci()))
            else 1.0
            for move in self._answer.candidates
        ]

    @property
    def consistency(self) -> float:
        best = best_stated(self._answer.stated)
        return 1 / len(best) if self._answer.move.uci() in best else 0.0

    @property
    def legal_moves(self) -> int:
        return self._answer.position.board.legal_moves.count()

    @property
    def truth(self) -> float:
        return truth_of(self._answer.reading)

    @property
    def influence(self) -> float:
        return max(-1.0, math.fsum(self._answer.influences.values()))

    @property
    def custom(self) -> Mapping[str, float]:
        return self._custom[self._answer]

    @property
    def model(self) -> float:
        if isinstance(self._scores, PeerFault):
            raise self._scores
        if not self._answer.reward_version.endswith(self._scores.sha256):
            raise PeerFault(f"the reward model is now {self._scores.sha256[:12]}: ask again")
        return self._scores.by_move[self._answer.move]


class MoveTask:
    """Judges moves by `searches`. Schemes may have terms of the `reward_model` and the `custom` ones."""

    def __init__(
        self,
        searches: Searches,
        *,
        scheme: str,
        custom: tuple[CustomTerm, ...],
        reward_model: RewardModel | None,
    ) -> None:
        self._searches = searches
        self._scheme = scheme
        self._custom = custom
        self._reward_model = reward_model

    async def read(self, item: ScoreItem, position: JudgedPosition) -> MoveAnswer | Verdict:
        """The answer to be judged, or the verdict of one without a legal move. Raises `InvalidInput` if the
        scheme is not valid or needs a model, or the reader does not know the position; `PeerFault` if the
        reward model's identity is not known, because it has not answered yet."""
        scheme = find_scheme(item.scheme or self._scheme, self._custom)
        version = self._version(scheme)
        find_answer = first_line if item.task == GAME_TASK else extract
        answer = find_answer(item.response, truncated=item.truncated)
        reading = (
            notation.MoveReading(answer.missing) if answer.missing else read_move(answer.text, position.board)
        )
        if (move := reading.move) is None:
            penalty = scheme.penalty(reading.outcome)
            return Verdict(
                penalty,
                reading.outcome,
                version,
                components={"penalty": penalty},
                engine=self._searches.stamp(),
            )
        named: tuple[NamedMove, ...] = ()
        if scheme.candidates:
            reasoning = before_answer(item.response)[:REASONING_CHARS]
            named = tuple(islice(named_moves(reasoning, position.board), scheme.candidates))
        candidates = dict.fromkeys(candidate.move for candidate in named if candidate.move is not None)
        stated: Mapping[str, StatedEvaluation] = {}
        if not scheme.uses.isdisjoint({"stated_errors", "consistency"}):
            stated = stated_evaluations(item.response, position.board)
            if scheme.candidates:  # a value that nobody judges makes no choice consistent
                judged = {move.uci() for move in candidates}
                stated = {move: evaluation for move, evaluation in stated.items() if move in judged}
        claims, influences = TextReading(()), Influences()
        if not scheme.uses.isdisjoint(_OF_TEXT):  # may take a second: not for the event loop
            claims = await asyncio.to_thread(read_reasoning, position.board.fen(), item.response, move.uci())
            effects = item.effects if "influence" in scheme.uses else ()
            influences = influence_of(claims, effects, place=f"answer to {item.fen!r}")
        return MoveAnswer(
            item,
            position,
            move,
            scheme=scheme,
            reward_version=version,
            named=named,
            candidates=tuple(candidates),
            stated=stated,
            reading=claims,
            influences=influences,
        )

    def _version(self, scheme: Scheme) -> str:
        """The `reward_version` under `scheme`: names everything that a reward depends on besides the item."""
        version = f"{scheme.id}/parser-{notation.VERSION}/{self._searches.version}"
        if not scheme.uses.isdisjoint(_OF_TEXT):
            version += f"/{reader_id()}"
        if "model" in scheme.uses:
            if self._reward_model is None:
                raise InvalidInput(f"scheme {scheme.text!r} needs a reward model: set model_url")
            version += f"/model-{self._reward_model.sha256}"
        return version

    async def judge(
        self, position: JudgedPosition, answers: Sequence[MoveAnswer], queue: RequestQueue
    ) -> list[Result]:
        """The verdicts of `answers` to `position`, in their order. A failed search gives an error instead.
        Raises `RookeryError` if the search of the whole position failed."""
        custom, faults = await _ask_functions(answers) if self._custom else ({}, {})
        results: dict[MoveAnswer, Result] = {**faults}
        if sound := [answer for answer in answers if answer not in faults]:
            many = not all(answer.scheme.uses.isdisjoint(_MANY_SEARCHES) for answer in sound)
            moves = dict.fromkeys(answer.move for answer in sound if "model" in answer.scheme.uses)
            asking: asyncio.Future[ModelScores | PeerFault] | None = None
            if moves and self._reward_model:
                asking = asyncio.ensure_future(self._reward_model.scores(position, list(moves)))
            try:
                async with queue.many_moves if many else nullcontext():
                    values = await self._searches.values(position, _looked_at(position, sound), queue)
                scores = await asking if asking else ModelScores("", {})
            finally:
                if asking:
                    asking.cancel()
            for answer in sound:
                results[answer] = self._result(answer, values, scores=scores, custom=custom)
        return [results[answer] for answer in answers]

    def _result(self, answer: MoveAnswer, values: Values, **opinions: Any) -> Result:
        try:
            components = answer.scheme.components(MoveEvidence(answer, values, **opinions))
            moves = values if "win_worst" in answer.scheme.uses else {answer.move, *answer.candidates}
            return Verdict(
                sum(components.values()),
                Outcome.LEGAL,
                answer.reward_version,
                components=components,
                sentences=sentences_of(answer.reading, answer.item.effects, answer.influences)
                if answer.reading.sentences
                else (),
                process_rewards=_process_rewards(answer, values) if answer.named else (),
                value_rewards=_value_rewards(answer, values) if "stated_errors" in answer.scheme.uses else (),
                **self._searches.compare(values, answer.move, moves),
            )
        except RookeryError as error:
            free_frames(error)
            return error


_OF_TEXT = frozenset[Source]({"truth", "influence"})
"""The reader is asked."""

_MANY_SEARCHES = frozenset[Source]({"win_worst", "wins_named", "stated_errors"})


def _looked_at(position: JudgedPosition, answers: Sequence[MoveAnswer]) -> list[chess.Move]:
    """The moves whose values the schemes look at."""
    if any("win_worst" in answer.scheme.uses for answer in answers):
        return list(position.board.legal_moves)
    return [move for answer in answers for move in (answer.move, *answer.candidates)]


async def _ask_functions(
    answers: Sequence[MoveAnswer],
) -> tuple[dict[MoveAnswer, dict[str, float]], dict[MoveAnswer, PeerFault]]:
    """The values of the users' functions that the schemes of `answers` have, and the faults of others."""
    values: defaultdict[MoveAnswer, dict[str, float]] = defaultdict(dict)
    faults: dict[MoveAnswer, PeerFault] = {}
    terms = {term for answer in answers for _, term in answer.scheme.terms if isinstance(term, CustomTerm)}
    for term in terms:
        concerned = [
            answer
            for answer in answers
            if answer not in faults and any(needed is term for _, needed in answer.scheme.terms)
        ]
        try:
            column = await term.ask(
                answers[0].item.fen,
                [answer.item.response for answer in concerned],
                [answer.move.uci() for answer in concerned],
            )
        except PeerFault as fault:
            faults |= dict.fromkeys(concerned, fault)
        else:
            for answer, value in zip(concerned, column, strict=True):
                values[answer][term.name] = value
    return values, faults


def _process_rewards(answer: MoveAnswer, values: Values) -> tuple[ProcessReward, ...]:
    """The reward of each move that the reasoning names. One named again earns as little as an illegal one."""
    if (scheme := answer.scheme.engine_terms) is None:
        return ()
    before = set[chess.Move]()
    rewards = []
    for named in answer.named:
        reward = scheme.low
        if named.move is not None and named.move not in before:
            before.add(named.move)
            reward = sum(scheme.components(EngineEvidence(values, named.move)).values())
        rewards.append(ProcessReward(named.start, named.end, reward))
    return tuple(rewards)


def _value_rewards(answer: MoveAnswer, values: Values) -> tuple[ProcessReward, ...]:
    """1 less the error of each stated win probability of the candidates, in their order."""
    return tuple(
        ProcessReward(stated.start, stated.end, 1.0 - abs(stated.win - values[move].win))
        for move in answer.candidates
        if (stated := answer.stated.get(move.uci()))
    )

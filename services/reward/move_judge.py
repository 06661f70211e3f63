"""Judges the legal moves of one position: searches them, applies the scheme and makes the verdicts.

The moves it is given are known to be legal. The scorer has read them from the answers.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import chess

from rookery.engines import RequestQueue
from rookery.errors import EngineFault, PeerFault, RookeryError
from rookery.schemes import TermInput
from rookery.trace import EngineStamp, Evaluation, Outcome, ProcessReward, Verdict
from rookery.uci import Analysis, Line, Query
from rookery.winprob import CHECKMATE, DRAW, WinModel
from services.reward.cache import AnalysisCache
from services.reward.move_answer import MoveAnswer
from services.reward.position import LegalMove, Position
from services.reward.reward_model import ModelScores, RewardModel
from services.reward.truth import sentences_of, truth_of

Result = Verdict | RookeryError


@dataclass(frozen=True, slots=True)
class MoveValue:
    """A move's score and win probability for the side to move, and the nodes of the search of this move."""

    evaluation: Evaluation
    win: float
    nodes: int = 0


class MoveJudge:
    """Judges moves by a search of `nodes` nodes each and a win model."""

    def __init__(
        self,
        cache: AnalysisCache,
        model: WinModel,
        *,
        nodes: int,
        engine_id: str,
        reward_model: RewardModel | None = None,
    ) -> None:
        self.model = model
        self._reward_model = reward_model
        self._cache = cache
        self._nodes = nodes
        self._engine_id = engine_id

    async def judge(
        self, position: Position, answers: Sequence[MoveAnswer], queue: RequestQueue
    ) -> list[Result]:
        """The verdicts of `answers` to `position`, in their order. A failed search gives an error instead."""
        root = await self.root(position, queue)
        if not isinstance(root, Analysis):
            return [root] * len(answers)
        best_move = position.from_engine(root.best)
        best = position.legal_move(best_move)
        top = self.value(best, root.lines[0], nodes=root.nodes)
        values, scores = await asyncio.gather(
            self.values(position, self._asked(position, answers, best_move), queue),
            self._model_scores(position, answers),
        )
        values[best_move] = MoveValue(top.evaluation, top.win)
        counted = any(answer.scheme.candidates for answer in answers)
        legal_moves = position.board.legal_moves.count() if counted else 0
        return [
            self._verdict(
                answer,
                best,
                top,
                root_nodes=root.nodes,
                values=values,
                scores=scores,
                legal_moves=legal_moves,
            )
            for answer in answers
        ]

    async def root(
        self, position: Position, queue: RequestQueue, *, lines: int = 1
    ) -> Analysis | RookeryError:
        """The search of the whole position for its best `lines` moves.

        Returns an error if the search failed or the engine answered with an illegal move.
        """
        query = Query(position.key, self._nodes, lines=lines, chess960=position.chess960)
        (root,) = await self._cache.find_all([query], queue)
        if isinstance(root, Analysis):
            try:
                for line in root.lines:
                    position.legal_move(position.from_engine(line.pv[0]))
            except ValueError as error:
                return EngineFault(f"the engine's answer is not valid: {error}")
        return root

    def value(self, legal_move: LegalMove, line: Line, *, nodes: int = 0) -> MoveValue:
        """The value of `legal_move`: by the rules if it ends the game, else by the engine's `line` for it."""
        return _final_value(legal_move) or MoveValue(line.evaluation, self.model.win(line), nodes)

    async def values(
        self, position: Position, moves: Sequence[chess.Move], queue: RequestQueue
    ) -> dict[chess.Move, MoveValue | RookeryError]:
        """The value of each of `moves`: by the rules if it ends the game, else by a search of it alone."""
        results: dict[chess.Move, MoveValue | RookeryError] = {}
        for move in moves:
            if (value := _final_value(position.legal_move(move))) is not None:
                results[move] = value
        unsettled = [move for move in moves if move not in results]
        queries = [
            Query(position.key, self._nodes, position.to_engine(move), chess960=position.chess960)
            for move in unsettled
        ]
        for move, analysis in zip(unsettled, await self._cache.find_all(queries, queue), strict=True):
            if isinstance(analysis, Analysis):
                results[move] = self.value(position.legal_move(move), analysis.lines[0], nodes=analysis.nodes)
            else:
                results[move] = analysis
        return results

    def _asked(self, position: Position, answers: Sequence[MoveAnswer], best: chess.Move) -> list[chess.Move]:
        if any(answer.scheme.needs_worst for answer in answers):
            return [move for move in position.board.legal_moves if move != best]
        moves = dict.fromkeys(move for answer in answers for move in (answer.move, *answer.candidates))
        return [move for move in moves if move != best]

    async def _model_scores(
        self, position: Position, answers: Sequence[MoveAnswer]
    ) -> ModelScores | PeerFault:
        moves = dict.fromkeys(answer.move for answer in answers if answer.scheme.needs_model)
        if not moves or self._reward_model is None:
            return _NO_SCORES
        return await self._reward_model.scores(position, list(moves))

    def _verdict(
        self,
        answer: MoveAnswer,
        best: LegalMove,
        top: MoveValue,
        *,
        root_nodes: int,
        values: dict[chess.Move, MoveValue | RookeryError],
        scores: ModelScores | PeerFault,
        legal_moves: int,
    ) -> Result:
        needs_worst = answer.scheme.needs_worst
        searched = {
            move: values[move] for move in (answer.move, *(values if needs_worst else answer.candidates))
        }
        judged = {move: value for move, value in searched.items() if isinstance(value, MoveValue)}
        if fault := next((value for value in searched.values() if not isinstance(value, MoveValue)), None):
            return fault
        played = judged[answer.move]
        worst = min(value.win for value in judged.values()) if needs_worst else None
        nodes = root_nodes + sum(value.nodes for value in judged.values())
        model_score = _model_score(answer, scores)
        if isinstance(model_score, PeerFault):
            return model_score
        wins_named = tuple(judged[move].win for move in answer.candidates)
        truth = truth_of(answer.reading) if answer.reading else None
        inputs = TermInput(
            top.win,
            played.win,
            answer.response,
            win_worst=worst,
            model=model_score,
            wins_named=wins_named,
            legal_moves=legal_moves,
            truth=truth,
            custom=answer.custom,
            played=played.evaluation,
        )
        components = answer.scheme.components(inputs)
        return Verdict(
            reward=sum(components.values()),
            outcome=Outcome.LEGAL,
            reward_version=answer.reward_version,
            move=answer.legal_move.move,
            best=best.move,
            win_before=top.win,
            win_after=played.win,
            regret=inputs.regret,
            eval_before=top.evaluation,
            eval_after=played.evaluation,
            components=components,
            engine=EngineStamp(self._engine_id, nodes),
            sentences=sentences_of(answer.reading) if answer.reading else (),
            process_rewards=_process_rewards(answer, inputs, judged),
        )


def _process_rewards(
    answer: MoveAnswer, inputs: TermInput, values: Mapping[chess.Move, MoveValue]
) -> tuple[ProcessReward, ...]:
    """The reward of each move that the reasoning names. One named again earns as little as an illegal one."""
    scheme = answer.scheme.engine_terms if answer.named else None
    if scheme is None:
        return ()
    before = set[chess.Move]()
    rewards = []
    for mention in answer.named:
        reward = scheme.low
        if mention.move is not None and mention.move not in before:
            before.add(mention.move)
            value = values[mention.move]
            alone = TermInput(inputs.win_best, value.win, "", inputs.win_worst, played=value.evaluation)
            reward = sum((weight * term.value(alone) for weight, term in scheme.terms), 0.0)
        rewards.append(ProcessReward(mention.start, mention.end, reward))
    return tuple(rewards)


_NO_SCORES = ModelScores("", {})


def _model_score(answer: MoveAnswer, scores: ModelScores | PeerFault) -> float | PeerFault | None:
    if not answer.scheme.needs_model:
        return None
    if isinstance(scores, PeerFault):
        return scores
    if not answer.reward_version.endswith(scores.sha256):
        return PeerFault(f"the reward model is now {scores.sha256[:12]}: ask again")
    return scores.by_move[answer.move]


def _final_value(legal_move: LegalMove) -> MoveValue | None:
    if legal_move.final_score is None:
        return None
    return MoveValue(legal_move.final_score, CHECKMATE if legal_move.final_score.mate else DRAW)

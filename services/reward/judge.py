"""Judges the legal moves of one position: searches them, applies the scheme and makes the verdicts.

The moves it is given are known to be legal. The scorer has read them from the answers.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import chess

from rookery.engines import RequestQueue
from rookery.errors import EngineFault, PeerFault, RookeryError
from rookery.trace import EngineStamp, Evaluation, Outcome, Verdict
from rookery.uci import Analysis, Line, Query
from rookery.winprob import CHECKMATE, DRAW, WinModel
from services.reward.cache import AnalysisCache
from services.reward.learned import LearnedReward, Opinion
from services.reward.position import Play, Position
from services.reward.schemes import Evidence, Scheme

Result = Verdict | RookeryError


@dataclass(frozen=True, slots=True)
class MoveAnswer:
    """An answer with a legal move: the move, the full text and the scheme that turns it into a reward."""

    play: Play
    move: chess.Move
    response: str
    scheme: Scheme
    reward_version: str


@dataclass(frozen=True, slots=True)
class Worth:
    """A move's score and win probability for the side to move, and the nodes of the search of this move."""

    evaluation: Evaluation
    win: float
    nodes: int = 0


class Judge:
    """Judges moves by a search of `nodes` nodes each and a win model."""

    def __init__(
        self,
        cache: AnalysisCache,
        model: WinModel,
        *,
        nodes: int,
        engine_id: str,
        learned: LearnedReward | None = None,
    ) -> None:
        self.model = model
        self._learned = learned
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
        best = position.play(best_move)
        top = self.worth(best, root.lines[0], nodes=root.nodes)
        worths, opinion = await asyncio.gather(
            self.worths(position, self._asked(position, answers, best_move), queue),
            self._opinion(position, answers),
        )
        worths[best_move] = Worth(top.evaluation, top.win)
        return [self._verdict(answer, best, top, root.nodes, worths, opinion) for answer in answers]

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
                    position.play(position.from_engine(line.pv[0]))
            except ValueError as error:
                return EngineFault(f"the engine answers nonsense: {error}")
        return root

    def worth(self, play: Play, line: Line, *, nodes: int = 0) -> Worth:
        """The worth of `play`: by the rules if it ends the game, else by the engine's `line` for it."""
        return _settled(play) or Worth(line.evaluation, self.model.win(line), nodes)

    async def worths(
        self, position: Position, moves: Sequence[chess.Move], queue: RequestQueue
    ) -> dict[chess.Move, Worth | RookeryError]:
        """The worth of each of `moves`: by the rules if it ends the game, else by a search of it alone."""
        found: dict[chess.Move, Worth | RookeryError] = {}
        for move in moves:
            if (worth := _settled(position.play(move))) is not None:
                found[move] = worth
        unsettled = [move for move in moves if move not in found]
        queries = [
            Query(position.key, self._nodes, position.to_engine(move), chess960=position.chess960)
            for move in unsettled
        ]
        for move, analysis in zip(unsettled, await self._cache.find_all(queries, queue), strict=True):
            if isinstance(analysis, Analysis):
                found[move] = self.worth(position.play(move), analysis.lines[0], nodes=analysis.nodes)
            else:
                found[move] = analysis
        return found

    def _asked(self, position: Position, answers: Sequence[MoveAnswer], best: chess.Move) -> list[chess.Move]:
        if any(answer.scheme.needs_worst for answer in answers):
            return [move for move in position.board.legal_moves if move != best]
        return [move for move in dict.fromkeys(answer.move for answer in answers) if move != best]

    async def _opinion(self, position: Position, answers: Sequence[MoveAnswer]) -> Opinion | PeerFault:
        moves = dict.fromkeys(answer.move for answer in answers if answer.scheme.needs_model)
        if not moves or self._learned is None:
            return _NO_OPINION
        return await self._learned.opinion(position, list(moves))

    def _verdict(
        self,
        answer: MoveAnswer,
        best: Play,
        top: Worth,
        root_nodes: int,
        worths: dict[chess.Move, Worth | RookeryError],
        opinion: Opinion | PeerFault,
    ) -> Result:
        own = worths[answer.move]
        if not isinstance(own, Worth):
            return own
        worst = None
        nodes = root_nodes + own.nodes
        if answer.scheme.needs_worst:
            if fault := next((worth for worth in worths.values() if not isinstance(worth, Worth)), None):
                return fault
            all_worths = [worth for worth in worths.values() if isinstance(worth, Worth)]
            worst = min(worth.win for worth in all_worths)
            nodes = root_nodes + sum(worth.nodes for worth in all_worths)
        thought = _thought(answer, opinion)
        if isinstance(thought, PeerFault):
            return thought
        evidence = Evidence(top.win, own.win, answer.response, worst, thought)
        components = answer.scheme.components(evidence)
        return Verdict(
            reward=sum(components.values()),
            outcome=Outcome.LEGAL,
            reward_version=answer.reward_version,
            move=answer.play.move,
            best=best.move,
            win_before=top.win,
            win_after=own.win,
            regret=evidence.regret,
            eval_before=top.evaluation,
            eval_after=own.evaluation,
            components=components,
            engine=EngineStamp(self._engine_id, nodes),
        )


_NO_OPINION = Opinion("", {})


def _thought(answer: MoveAnswer, opinion: Opinion | PeerFault) -> float | PeerFault | None:
    if not answer.scheme.needs_model:
        return None
    if isinstance(opinion, PeerFault):
        return opinion
    if not answer.reward_version.endswith(opinion.sha256):
        return PeerFault(f"the reward model has become {opinion.sha256[:12]}: ask again")
    return opinion.of[answer.move]


def _settled(play: Play) -> Worth | None:
    if play.settled is None:
        return None
    return Worth(play.settled, CHECKMATE if play.settled.mate else DRAW)

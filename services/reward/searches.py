"""The values of moves: by the rules if a move ends the game, else by a search and a win model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import chess

from rookery.engines import RequestQueue
from rookery.errors import EngineFault, RookeryError
from rookery.trace import EngineStamp, Evaluation, Move, Verdict
from rookery.uci import Analysis, Line, Query
from rookery.winprob import CHECKMATE, DRAW, WinModel
from services.reward.cache import AnalysisCache
from services.reward.position import JudgedPosition, LegalMove

if TYPE_CHECKING:
    from rookery.config.reward import RewardSettings

Result = Verdict | RookeryError
"""What becomes of an item."""


class MoveValue(NamedTuple):
    """A move's score and win probability for the side to move, and the nodes of the search of this move."""

    move: Move
    evaluation: Evaluation
    win: float
    nodes: int = 0


class Values(Mapping[chess.Move, MoveValue]):
    """The values of moves of one position. To look up one whose search failed raises its `RookeryError`.

    `top` are those of the engine's best moves, by a search of the whole position, which took `nodes` nodes.
    `best` is the highest of them.
    """

    def __init__(
        self,
        top: Mapping[chess.Move, MoveValue],
        nodes: int,
        results: Mapping[chess.Move, MoveValue | RookeryError],
    ) -> None:
        self.top, self.nodes = top, nodes
        self.best = max(top.values(), key=attrgetter("win"))
        self._results = results

    def __getitem__(self, move: chess.Move) -> MoveValue:
        value = self._results[move]
        if isinstance(value, MoveValue):
            return value
        raise value

    def __iter__(self) -> Iterator[chess.Move]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)


class Searches:
    """Searches by the engine `engine_id`. `version` names all that a value depends on besides the move."""

    def __init__(
        self, cache: AnalysisCache, model: WinModel, settings: RewardSettings, *, engine_id: str
    ) -> None:
        self.model = model
        self._cache = cache
        self._nodes = settings.nodes
        self._engine_id = engine_id
        engine = engine_id.lower().replace(" ", "-")
        self.version = f"{model.id}/nodes-{settings.nodes}/hash-{settings.hash_mb}/{engine}"

    async def values(
        self, position: JudgedPosition, moves: Sequence[chess.Move], queue: RequestQueue, *, lines: int = 1
    ) -> Values:
        """The values of the best `lines` moves by one search, and those of the other `moves` by one each.
        Raises `RookeryError` if the search of the position failed, or the engine answered with an illegal
        move."""
        query = Query(position.key, self._nodes, lines=lines, chess960=position.chess960)
        (root,) = await self._cache.find_all([query], queue)
        if not isinstance(root, Analysis):
            raise root
        top = self._best_moves(position, root.lines)
        results: dict[chess.Move, MoveValue | RookeryError] = dict(top)
        unsettled: dict[chess.Move, LegalMove] = {}
        for move in dict.fromkeys(moves):
            if move in results:
                continue
            legal_move = position.legal_move(move)
            if (score := legal_move.final_score) is None:
                unsettled[move] = legal_move
            else:
                results[move] = _final_value(legal_move.move, score)
        queries = [
            Query(position.key, self._nodes, position.to_engine(move), chess960=position.chess960)
            for move in unsettled
        ]
        analyses = await self._cache.find_all(queries, queue)
        for (move, legal_move), analysis in zip(unsettled.items(), analyses, strict=True):
            if isinstance(analysis, Analysis):
                results[move] = self._value(legal_move, analysis.lines[0], nodes=analysis.nodes)
            else:
                results[move] = analysis
        return Values(top, root.nodes, results)

    def _best_moves(self, position: JudgedPosition, lines: Sequence[Line]) -> dict[chess.Move, MoveValue]:
        top = {}
        try:
            for line in lines:
                move = position.from_engine(line.pv[0])
                top[move] = self._value(position.legal_move(move), line)
        except ValueError as error:
            raise EngineFault(f"the engine's answer is not valid: {error}") from error
        return top

    def _value(self, legal_move: LegalMove, line: Line, *, nodes: int = 0) -> MoveValue:
        if (score := legal_move.final_score) is not None:
            return _final_value(legal_move.move, score)
        return MoveValue(legal_move.move, line.evaluation, self.model.win(line), nodes)

    def compare(self, values: Values, move: chess.Move, looked_at: Iterable[chess.Move]) -> dict[str, Any]:
        """The fields of a verdict that compare `move` with the best one, and the engine that was needed."""
        best, played = values.best, values[move]
        return {
            "move": played.move,
            "best": best.move,
            "win_before": best.win,
            "win_after": played.win,
            "regret": max(0.0, best.win - played.win),
            "eval_before": best.evaluation,
            "eval_after": played.evaluation,
            "engine": self.stamp(values.nodes + sum(values[move].nodes for move in looked_at)),
        }

    def stamp(self, nodes: int = 0) -> EngineStamp:
        """The engine of a verdict, and the nodes that it searched for it."""
        return EngineStamp(self._engine_id, nodes)


def _final_value(move: Move, score: Evaluation) -> MoveValue:
    return MoveValue(move, score, CHECKMATE if score.mate else DRAW)

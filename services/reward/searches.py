"""The values of moves: by the rules if a move ends the game, else by a search and a win model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import chess

from rookery.engines import RequestQueue
from rookery.errors import EngineFault, RookeryError
from rookery.trace import EngineStamp, Evaluation, Move, Verdict
from rookery.uci import Analysis, Line, Query
from rookery.winprob import CHECKMATE, DRAW, WinModel
from services.reward.cache import AnalysisCache
from services.reward.position import LegalMove, Position

if TYPE_CHECKING:
    from rookery.config.reward import RewardSettings

Result = Verdict | RookeryError
"""What becomes of an item."""


@dataclass(frozen=True, slots=True)
class MoveValue:
    """A move's score and win probability for the side to move, and the nodes of the search of this move."""

    move: Move
    evaluation: Evaluation
    win: float
    nodes: int = 0


class Values(Mapping[chess.Move, MoveValue]):
    """The values of moves of one position. To look up one whose search failed raises its `RookeryError`.

    `top` are those of the engine's best moves, by a search of the whole position, which took `nodes` nodes.
    """

    def __init__(
        self,
        top: Mapping[chess.Move, MoveValue],
        nodes: int,
        results: Mapping[chess.Move, MoveValue | RookeryError],
    ) -> None:
        self.top, self.nodes = top, nodes
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

    @property
    def best(self) -> MoveValue:
        """The value of the best move."""
        return max(self.top.values(), key=lambda value: value.win)


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
        self, position: Position, moves: Sequence[chess.Move], queue: RequestQueue, *, lines: int = 1
    ) -> Values:
        """The values of the best `lines` moves by one search, and those of the other `moves` by one each.

        Raises:
            RookeryError: the search of the position failed, or the engine answered with an illegal move.
        """
        query = Query(position.key, self._nodes, lines=lines, chess960=position.chess960)
        (root,) = await self._cache.find_all([query], queue)
        if not isinstance(root, Analysis):
            raise root
        try:
            best = [(position.from_engine(line.pv[0]), line) for line in root.lines]
            top = {move: self._value(position.legal_move(move), line) for move, line in best}
        except ValueError as error:
            raise EngineFault(f"the engine's answer is not valid: {error}") from error
        results: dict[chess.Move, MoveValue | RookeryError] = dict(top)
        for move in moves:
            if move not in results and (value := _final_value(position.legal_move(move))) is not None:
                results[move] = value
        unsettled = [move for move in dict.fromkeys(moves) if move not in results]
        queries = [
            Query(position.key, self._nodes, position.to_engine(move), chess960=position.chess960)
            for move in unsettled
        ]
        for move, analysis in zip(unsettled, await self._cache.find_all(queries, queue), strict=True):
            if isinstance(analysis, Analysis):
                legal_move = position.legal_move(move)
                results[move] = self._value(legal_move, analysis.lines[0], nodes=analysis.nodes)
            else:
                results[move] = analysis
        return Values(top, root.nodes, results)

    def _value(self, legal_move: LegalMove, line: Line, *, nodes: int = 0) -> MoveValue:
        return _final_value(legal_move) or MoveValue(
            legal_move.move, line.evaluation, self.model.win(line), nodes
        )

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


def _final_value(legal_move: LegalMove) -> MoveValue | None:
    if (score := legal_move.final_score) is None:
        return None
    return MoveValue(legal_move.move, score, CHECKMATE if score.mate else DRAW)

"""All that a writer needs to know about one position: facts, candidates with their lines, the threat.

The engine's answers become moves with ideas, lines cut where they come to rest, and the reason why each
candidate is rejected. No words here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import chess

from rookery.trace import Evaluation
from rookery.uci import Line
from services.data.annotate.exchange import passed_turn
from services.data.annotate.facts import Fact, survey
from services.data.annotate.ideas import Idea, ideas_of
from services.data.annotate.play import Play, Swing
from services.data.annotate.standing import Loss, Standing, centipawns, loss, standing
from services.data.annotate.step import Step
from services.data.annotate.study import Study, sound_board

_LONGEST = 14
_CLEARLY_WORSE_CP = 40
"""A natural move is only worth refuting if a smaller search already finds it this much worse."""


_A_PIECE = 2
"""In pawns, at least."""

_NOISE_CP = 20
"""A second line scored higher than the first by more than this was searched less deeply: left out."""


@dataclass(frozen=True)
class Candidate:
    """A move worth a word: what it does, how the game goes on, what it gives away."""

    move: chess.Move
    evaluation: Evaluation
    step: Step
    full: Play
    loss: Loss
    is_best: bool
    threat: chess.Move | None = None

    @cached_property
    def ideas(self) -> list[Idea]:
        """What the move does, the weightiest first; with an eye on what the other side threatens."""
        return ideas_of(self.step, threat=self.threat)

    @property
    def standing(self) -> Standing:
        """How the mover stands after it."""
        return standing(self.evaluation)

    @property
    def quiet(self) -> bool:
        """No capture, no check, no promotion."""
        return self.step.victim is None and not self.step.after.is_check() and not self.move.promotion

    def play(self, *, most: int) -> Play:
        """Its line, at most `most` moves, ending where it has come to rest."""
        return self.full.rest(least=min(2, most), most=most)

    def swing(self, play: Play) -> Swing:
        """What the line brings the mover."""
        return play.swing(self.step.mover)


@dataclass(frozen=True)
class Threat:
    """What the other side would play if the mover passed, and what that would bring it."""

    play: Play
    evaluation: Evaluation
    swing: Swing

    @property
    def mates(self) -> bool:
        """Whether it ends in mate."""
        return self.play.end.is_checkmate()


@dataclass(frozen=True)
class Case:
    """A position with everything found out about it; candidates are in order of merit."""

    board: chess.Board
    study: Study
    candidates: tuple[Candidate, ...]
    threat: Threat | None

    @classmethod
    def of(cls, study: Study) -> Case:
        """Makes the case of a study.

        Raises:
            InvalidInput: the study is of a position without a game to play.
        """
        board = sound_board(study.fen)
        best = study.best
        top = centipawns(best.evaluation)
        others = [line for line in study.lines[1:] if centipawns(line.evaluation) <= top + _NOISE_CP]
        weaker = [line for line in study.refuted if top - centipawns(line.evaluation) >= _CLEARLY_WORSE_CP]
        rest = sorted((*others, *weaker), key=lambda line: -centipawns(line.evaluation))
        threat = _threat(board, study)
        feared = threat.play.moves[0] if threat else None
        candidates = tuple(_candidate(board, line, best, feared) for line in (best, *rest))
        return cls(board, study, candidates, threat)

    @property
    def best(self) -> Candidate:
        """The move to choose."""
        return self.candidates[0]

    @property
    def mover(self) -> chess.Color:
        """The side to move."""
        return self.board.turn

    @cached_property
    def facts(self) -> list[Fact]:
        """Every fact about the position."""
        return list(survey(self.board))

    @cached_property
    def only_move(self) -> bool:
        """Whether there is nothing to choose."""
        return self.board.legal_moves.count() == 1


def _candidate(board: chess.Board, line: Line, best: Line, feared: chess.Move | None) -> Candidate:
    play = Play.of(board, line.pv, longest=_LONGEST)
    step = Step.of(board, play.moves[0])
    verdict = Loss.NOTHING if line is best else loss(best.evaluation, line.evaluation)
    return Candidate(play.moves[0], line.evaluation, step, play, verdict, is_best=line is best, threat=feared)


def _threat(board: chess.Board, study: Study) -> Threat | None:
    """The engine's line for the other side if it gains something that lasts: pieces or mate."""
    passed = passed_turn(board) if study.threat else None
    if passed is None or study.threat is None:
        return None
    play = _to_the_point(Play.of(passed, study.threat.pv, longest=_LONGEST).rest(least=1, most=5))
    swing = play.swing(passed.turn)
    if play.end.is_checkmate() or swing.points > 0:
        return Threat(play, study.threat.evaluation, swing)
    return None


def _to_the_point(play: Play) -> Play:
    """Only as far as it has won a piece: how the other side would go on after a pass is of no interest."""
    side = play.boards[0].turn
    enough = min(_A_PIECE, play.swing(side).points)
    if play.end.is_checkmate() or enough <= 0:
        return play
    return next(
        cut for ply in range(1, len(play.moves) + 1) if (cut := play.cut(ply)).swing(side).points >= enough
    )

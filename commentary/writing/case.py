"""All that a writer needs to know of a position: findings, candidates with their lines, the threat."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Self

import chess

from commentary.concept import CONCEPTS, Finding, move_findings, position_findings
from commentary.concepts.defence import stopped
from commentary.concepts.standings import degree
from commentary.exchange import is_absurd, passed_turn
from commentary.step import Step
from commentary.study import Score, Study, StudyLine, sound_board
from commentary.writing.play import Play

_LONGEST = 14
_CLEARLY_WORSE_CP = 40
"""A natural move is only worth refuting if a smaller search already finds it this much worse."""

_NOISE_CP = 20
"""A second line scored higher than the first by more than this was searched less deeply: left out."""

_AS_GOOD_CP = 25
_A_PIECE = 2
_RETAKING = 6.0
"""The weight of taking back."""

_MUCH_WORSE_CP, _LOST_CP = 100, 200
"""What is absurd at a glance is no candidate if it is so much worse than the best move; nor is a quiet move
instead of taking back."""

WINNING, LOST = 4, -4
STRONG = 1.5
"""The weight from which on an effect needs no excuse to be told."""

_AIMED = ("attacks", "forks", "adds an attacker", "targets a weakness", "captures", "pawn strikes", "pins")
_FAINT = ("covers squares", "centralises", "denies a square", "takes a file")
STATES = ("checks", "discovers check", "mates", "stalemates", "promotes", "leaves check")
"""Deeds that are no purpose: a move is check, it does not aim to be."""


class Loss(IntEnum):
    """How much of the best move's win probability a move gives away."""

    NOTHING, LITTLE, SOME, MUCH, EVERYTHING = range(5)

    @classmethod
    def of(cls, best: Score, played: Score) -> Self:
        """The degree of a loss: up to 0.06, 0.15, 0.30, or more. To mate later gives something away."""
        if best.capped - played.capped <= _AS_GOOD_CP and best.mate == played.mate:
            return cls.NOTHING
        return cls(1 + sum(best.win - played.win >= bound for bound in (0.06, 0.15, 0.30)))


@dataclass(frozen=True)
class CandidateMove:
    """A move worth a word: what it does, how the game goes on, what it gives away."""

    move: chess.Move
    score: Score
    step: Step
    full: Play
    loss: Loss
    is_best: bool
    threat: chess.Move | None = None
    retakes: bool = False
    """Whether it takes back on the square where the other side has just taken."""

    @cached_property
    def effects(self) -> list[Finding]:
        """What the move does, the weightiest first; with an eye on what the other side threatens."""
        findings = move_findings(self.step)
        if self.threat is not None:
            findings += stopped(self.step, self.threat)
        if self.retakes:
            findings = [effect for effect in findings if effect.concept.name != "captures"]
            findings.append(Finding(CONCEPTS["recaptures"], {"here": self.move.to_square}, _RETAKING))
        return sorted(findings, key=lambda finding: -finding.weight)

    @property
    def degree(self) -> int:
        """How the mover stands after it, -4 to 4."""
        return degree(self.score)

    @property
    def quiet(self) -> bool:
        """No capture, no check, no promotion."""
        return self.step.victim is None and not self.step.after.is_check() and not self.move.promotion


@dataclass(frozen=True)
class Case:
    """A position with everything found out about it; candidates are in order of merit."""

    board: chess.Board
    study: Study
    candidates: tuple[CandidateMove, ...]
    threat: Play | None

    @classmethod
    def of(cls, study: Study) -> Self:
        """Makes the case of a study. Raises `ValueError` if the position is broken, the study has no lines,
        or a line cannot be played."""
        board, best = sound_board(study.fen), study.best
        if best is None:
            raise ValueError(f"no line to write about in {study.fen!r}")
        others = [line for line in study.lines[1:] if line.score.value <= best.score.value + _NOISE_CP]
        worse = [line for line in study.refuted if best.score.value - line.score.value >= _CLEARLY_WORSE_CP]
        taken = _taken_on(board, study.last)
        natural = [line for line in (*others, *worse) if _is_natural(board, line, best, taken)]
        rest = sorted(natural, key=lambda line: -line.score.value)
        threat = _threat(board, study)
        feared = threat.moves[0] if threat else None
        candidates = (_candidate(board, line, best, feared, taken) for line in (best, *rest))
        return cls(board, study, tuple(candidates), threat)

    @property
    def best(self) -> CandidateMove:
        return self.candidates[0]

    @property
    def mover(self) -> chess.Color:
        return self.board.turn

    @cached_property
    def findings(self) -> list[Finding]:
        return position_findings(self.board)

    @cached_property
    def only_move(self) -> bool:
        return self.board.legal_moves.count() == 1


def _is_natural(board: chess.Board, line: StudyLine, best: StudyLine, taken: chess.Square | None) -> bool:
    """Whether a player would look at a move: not if it only gives material away, or does not take back."""
    move, first = (chess.Move.from_uci(variation.moves[0]) for variation in (line, best))
    worse = best.score.value - line.score.value
    if worse >= _MUCH_WORSE_CP and is_absurd(board, move):
        return False
    must = taken is not None and first.to_square == taken != move.to_square
    return not must or worse < _LOST_CP or board.gives_check(move)


def _taken_on(board: chess.Board, last: str | None) -> chess.Square | None:
    """Where the last move has taken something, as far as the position shows it."""
    if last is None:
        return None
    move = chess.Move.from_uci(last)
    pawn = board.piece_type_at(move.to_square) == chess.PAWN
    straight = chess.square_file(move.from_square) == chess.square_file(move.to_square)
    took = board.halfmove_clock == 0 and not (pawn and straight) and move.promotion is None
    return move.to_square if took and board.color_at(move.to_square) == (not board.turn) else None


def _candidate(
    board: chess.Board,
    line: StudyLine,
    best: StudyLine,
    feared: chess.Move | None,
    taken: chess.Square | None,
) -> CandidateMove:
    play = Play.of(board, line.moves, longest=_LONGEST)
    step = Step.of(board, play.moves[0])
    loss = Loss.NOTHING if line is best else Loss.of(best.score, line.score)
    back = taken is not None and step.victim == taken
    return CandidateMove(
        step.move, line.score, step, full=play, loss=loss, is_best=line is best, threat=feared, retakes=back
    )


def _threat(board: chess.Board, study: Study) -> Play | None:
    """The engine's line for the other side, as far as it gains something that lasts: pieces or mate."""
    passed = passed_turn(board) if study.threat else None
    if passed is None or study.threat is None:
        return None
    side = passed.turn
    play = Play.of(passed, study.threat.moves, longest=_LONGEST).rest(least=1, most=5)
    gained = play.swing(side).points
    if play.end.is_checkmate() or gained <= 0:
        return play if play.end.is_checkmate() else None
    # How the other side would go on after a pass is of no interest.
    cuts = (play.cut(ply) for ply in range(1, len(play.moves) + 1))
    return next(cut for cut in cuts if cut.swing(side).points >= min(_A_PIECE, gained))


def selected(candidate: CandidateMove, count: int) -> list[Finding]:
    """The effects worth telling, the weightiest first; what follows from another is left out."""
    ends = [effect for effect in candidate.effects if effect.concept.name in ("mates", "stalemates")]
    if ends:
        return [*(effect for effect in candidate.effects if effect.concept.name == "captures"), ends[0]]
    return _pruned([effect for effect in candidate.effects if effect.weight > 0], candidate.step)[:count]


def telling(step: Step, effects: Sequence[Finding], least: float) -> list[Finding]:
    """The effects of a reply from a weight on; its name says already that it is check."""
    implied = ("leaves check", "checks")
    strong = [effect for effect in _pruned(effects, step) if effect.weight >= least]
    return [effect for effect in strong if effect.concept.name not in implied]


def _pruned(effects: Sequence[Finding], step: Step) -> list[Finding]:
    """The effects without those that another one says already."""
    remaining: list[Finding] = []
    for effect in effects:
        if not any(_covers(earlier, effect, step) for earlier in remaining):
            remaining.append(effect)
    return [effect for effect in remaining if effect.weight >= STRONG] or remaining


def _covers(earlier: Finding, effect: Finding, step: Step) -> bool:
    """Whether an `earlier` effect says what this one would say."""
    name, earlier_name = effect.concept.name, earlier.concept.name
    if name == "centralises" and earlier_name in ("develops", "captures"):
        return True
    if name == "checks":
        return earlier_name == "forks" and step.after.king(not step.mover) in earlier.values["targets"]
    if name == "takes a file":
        return earlier_name in ("doubles on a file", "castles")
    if name in ("parries", "avoids a check"):
        return earlier_name == "parries"
    if name in _AIMED and earlier_name in _AIMED and name not in ("captures", "pins"):
        return bool(set(effect.squares) & set(earlier.squares))
    if name == "activates the moved piece":
        return True  # a reason only where there is no better one
    return earlier_name == "castles" and name in (*_FAINT, "frees a piece")

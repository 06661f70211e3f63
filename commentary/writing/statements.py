"""Single true sentences: all findings about a position or a move, each in several forms of words."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import chess

from commentary.concept import Finding, move_findings, position_findings
from commentary.naming import Naming
from commentary.step import Step
from commentary.template import finite
from commentary.writing.position import repeats
from commentary.writing.voices import VOICES
from commentary.writing.writer import sentence


@dataclass(frozen=True, slots=True)
class Statement:
    """Something true, with a sentence for each template that can say it."""

    finding: Finding
    sentences: tuple[str, ...]

    def repeats(self, other: "Statement") -> bool:
        """Whether it says most of what another one says."""
        return self.finding is other.finding or repeats(self.finding, other.finding)


def position_statements(board: chess.Board, rng: random.Random, *, voice: str) -> list[Statement]:
    """All findings about a position, as sentences that stand alone: "The pawn on d5 is isolated." `rng`
    chooses among the names of a piece. Raises `KeyError` if there is no such voice."""
    return [
        Statement(finding, tuple(map(sentence, _clauses(finding, _naming(board, rng, voice)))))
        for finding in position_findings(board)
    ]


def move_statements(
    board: chess.Board, move: chess.Move, rng: random.Random, *, voice: str
) -> list[Statement]:
    """What speaks for a legal move, as sentences without their subject: "attacks the pawn on e5." Raises
    `KeyError` if there is no such voice."""
    step = Step.of(board, move)
    statements = []
    for finding in move_findings(step):
        naming = _naming(board, rng, voice)
        naming.look_at_move(step.before, step.after, step.target)
        if finding.weight > 0:
            phrases = _clauses(finding, naming)
            statements.append(Statement(finding, tuple(f"{finite(phrase)}." for phrase in phrases)))
    return statements


def _naming(board: chess.Board, rng: random.Random, voice: str) -> Naming:
    return Naming(board, voice, VOICES[voice].person, rng, VOICES[voice].owns)


def _clauses(finding: Finding, naming: Naming) -> Sequence[str]:
    """A finding in the words of each template that fits, each as if nothing had been named before."""
    restore = naming.restore_point()
    clauses = dict[str, None]()
    for template in finding.concept.options(naming, finding.values):
        restore()
        clauses[finding.concept.word(template, naming, finding.values)] = None
    return tuple(clauses)

"""Reads an analysis back and checks every claim on the board.

Independent of what wrote it: it has its own reading of squares and pieces, its own grammar, its own
definitions. It is told the position, the engine's lines and the move chosen, and nothing else.
"""

import re
from dataclasses import dataclass, field

import chess

from services.data.annotate.claims.forms import GRAMMAR
from services.data.annotate.claims.grammar import Clause
from services.data.annotate.claims.scene import Scene, parse
from services.data.annotate.claims.sentence import Parser, contractions_undone, sentences
from services.data.annotate.claims.wording import TALK, WORDING
from services.data.annotate.study import Study

_THINK = re.compile(r"<think>\s*(.*?)\s*</think>\s*(.*)", re.DOTALL)
_BOX = re.compile(r"\\boxed\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim, or one sentence that could not be read; `kind` names the form."""

    sentence: str
    words: str
    kind: str


@dataclass(slots=True)
class Report:
    """What a text claims: how much was read, what is false, what nobody could read."""

    sentences: int = 0
    talk: int = 0
    claims: int = 0
    false: list[Finding] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        """Whether every sentence was read and every claim is true."""
        return not self.false and not self.unread

    def add(self, other: "Report") -> None:
        """Takes up what another report says."""
        self.sentences += other.sentences
        self.talk += other.talk
        self.claims += other.claims
        self.false += other.false
        self.unread += other.unread
        for kind, number in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + number


def check(text: str, study: Study) -> Report:
    """Checks an answer of the form `<think> ... </think> ... \\boxed{move}`."""
    report = Report()
    match = _THINK.fullmatch(text.strip())
    boxes = _BOX.findall(match[2]) if match else []
    root = chess.Board(study.fen)
    chosen = _move(root, boxes[0]) if len(boxes) == 1 else None
    if match is None or chosen is None:
        report.false.append(Finding(text[-80:], "the answer", "form"))
        return report
    _claim(report, text, boxes[0], "boxed_is_best", chosen.uci() == study.best.pv[0])
    answer = _BOX.sub("", match[2]).strip()
    for part in (*match[1].split("\n\n"), answer):
        _paragraph(part, Scene(study, chosen.uci(), root), report)
    return report


def _move(board: chess.Board, text: str) -> chess.Move | None:
    try:
        move = chess.Move.from_uci(text)
    except ValueError:
        return parse(board, text)
    return move if board.is_legal(move) else None


def _paragraph(text: str, scene: Scene, report: Report) -> None:
    parser = Parser(GRAMMAR, WORDING)
    for sentence in sentences(" ".join(text.split())):
        report.sentences += 1
        scene.sentence += 1
        if _plain(sentence) in TALK:
            report.talk += 1
            continue
        clauses = parser.clauses(sentence)
        if clauses is None:
            report.unread.append(sentence)
            continue
        for clause in clauses:
            _check(report, sentence, clause, scene)


def _plain(sentence: str) -> str:
    return contractions_undone(sentence).strip(" .!?;:").lower()


def _check(report: Report, sentence: str, clause: Clause, scene: Scene) -> None:
    _claim(report, sentence, clause.words, clause.form.kind, clause.holds(scene))


def _claim(report: Report, sentence: str, words: str, kind: str, holds: bool) -> None:
    report.claims += 1
    report.kinds[kind] = report.kinds.get(kind, 0) + 1
    if not holds:
        report.false.append(Finding(sentence, words, kind))

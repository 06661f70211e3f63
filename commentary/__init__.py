"""Chess commentary whose every claim can be checked: positions in, prose out, and prose in, claims out.

    study = Study(fen, lines=(StudyLine(Score(cp=35), ("e2e4", "e7e5")),))
    text = write(study, voice="coach", length="short")
    for claim in read(study, "White has a passed pawn on d5. 1.e4 controls d5.").claims:
        print(claim.words, claim.true)

`read` takes any text, a model's too: each sentence is read or not, and each claim is true, false, or open
where the study has no evidence. A template is written once and works both ways, for `write` and for `read`.
Needs python-chess and nothing else; engines are asked elsewhere.
"""

from commentary import concepts as _concepts  # noqa: F401 -- fills the registry
from commentary.reader import read
from commentary.reading import ReadClaim, ReadSentence, TextReading
from commentary.study import Score, Study, StudyLine
from commentary.writing.statements import Statement, move_statements, position_statements
from commentary.writing.text import Text, write
from commentary.writing.voices import LENGTHS, VOICES

__all__ = [
    "LENGTHS",
    "VOICES",
    "ReadClaim",
    "ReadSentence",
    "Score",
    "Statement",
    "Study",
    "StudyLine",
    "Text",
    "TextReading",
    "move_statements",
    "position_statements",
    "read",
    "write",
]

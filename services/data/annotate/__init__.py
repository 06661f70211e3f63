"""Annotations: analyses of positions in prose, in the voice of a strong player, every claim checked.

    facts     what is true on a board: typed records, each with its definition
    ideas     what a move does, from the boards before and after it
    study     what the engine is asked: best lines, the threat, why natural moves fail
    case      facts, candidates and lines of one position, ready to be written about
    voice     the words: four voices, lengths by setting, varied by a seed
    claims    reads a text back and checks each claim with code of its own
    compose   study -> text -> check -> annotation

`Annotator` does it for many positions, with the engines never waiting for the words.
"""

from services.data.annotate.annotation import Annotation
from services.data.annotate.annotator import Annotator
from services.data.annotate.compose import Manner, compose
from services.data.annotate.study import Effort, Study, study

__all__ = ["Annotation", "Annotator", "Effort", "Manner", "Study", "compose", "study"]

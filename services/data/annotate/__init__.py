"""Annotations: analyses of positions in prose, every claim checked.

    study      what the engine is asked: best lines, the threat, why natural moves fail
    compose    a study -> a text of `commentary` -> an annotation
    audit      counts what is false in first drafts, and which planted falsehoods are found

`Annotator` does it for many positions, with the engines never waiting for the words.
"""

from services.data.annotate.annotator import Annotator
from services.data.annotate.compose import Annotation, Manner, compose
from services.data.annotate.study import Effort, study

__all__ = ["Annotation", "Annotator", "Effort", "Manner", "compose", "study"]

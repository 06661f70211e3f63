"""Annotations: analyses of positions in prose, every claim checked.

    study      what the engine is asked: best lines, the threat, why natural moves fail
    compose    a study -> a text of `commentary` -> an annotation

`Annotator` does both, position by position.
"""

from chess_datasets.annotate.annotator import Annotator
from chess_datasets.annotate.compose import Annotation, Manner, compose
from chess_datasets.annotate.study import Effort, study

__all__ = ["Annotation", "Annotator", "Effort", "Manner", "compose", "study"]

"""Where the wordings of facts and ideas are registered, by the type they put into words."""

from collections.abc import Callable
from typing import Any, TypeVar

import chess

from services.data.annotate.facts import Fact
from services.data.annotate.ideas import Idea
from services.data.annotate.step import Step
from services.data.annotate.voice.pen import Pen

FactWords = Callable[[Pen, chess.Board, Any], str]
"""A clause, without capital and full stop, that states a fact about a board."""

IdeaWords = Callable[[Pen, Step, Any], str]
"""A verb phrase whose subject is the move; verbs to be put into form begin with `~`."""

FACTS: dict[type[Fact], FactWords] = {}
IDEAS: dict[type[Idea], IdeaWords] = {}

F = TypeVar("F", bound=FactWords)
G = TypeVar("G", bound=IdeaWords)


def states(kind: type[Fact]) -> Callable[[F], F]:
    """Registers the words for a type of fact."""

    def register(words: F) -> F:
        FACTS[kind] = words
        return words

    return register


def does(kind: type[Idea]) -> Callable[[G], G]:
    """Registers the words for a type of idea."""

    def register(words: G) -> G:
        IDEAS[kind] = words
        return words

    return register

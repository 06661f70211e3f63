"""What is said of one candidate before the judgement: what it does, how the game goes on."""

from __future__ import annotations

from services.data.annotate.case import Case
from services.data.annotate.voice.follow import follow
from services.data.annotate.voice.introduce import drawback, introduce
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.topic import Topic


def consider(pen: Pen, case: Case, topic: Topic) -> list[str]:
    """The sentences about a candidate that lead up to the judgement."""
    pen.forget()
    pen.topic = topic.name
    introduced, warning = introduce(pen, topic), drawback(pen, topic)
    return [*introduced, *warning, *follow(pen, case, topic, warned=bool(warning))]

"""Influence: what a part of the reasoning changes in the choice of the move, measured by taking it out.

The same version is asked for the log-probabilities of the judged moves in the box: after the whole text
before it, after that text without a part, after the reasoning of another position, and after none. After each
text there is a distribution over the judged moves, and so an expected regret. The influence of a part is the
expected regret without it less the one with it: positive if it helps to choose. Tests of faithful reasoning
intervene alike (arXiv 2307.13702), and look at whether the answer changes; here it counts by how much it is
worse.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import chess

from rookery.answers import before_answer, empty_reasoning
from rookery.clients import InferenceClient
from rookery.notation import named_moves
from rookery.trace import Effect, Move, Verdict

BOX = "\\boxed{"

MAX_PARTS = 64
"""The first so many parts of a text are taken out, one at a time."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class JudgedMove:
    """A move and the win probability that it loses."""

    move: Move
    regret: float


@dataclass(frozen=True, slots=True)
class ChoiceDistribution:
    """What a version would choose after a text: log p of the judged moves, and their expected regret."""

    logprobs: tuple[float, ...]
    regret: float


def expected_regret(logprobs: Sequence[float], regrets: Sequence[float]) -> float:
    """The mean regret of the judged moves, weighted by softmax(log p): as if it chose among them alone.

    >>> expected_regret([math.log(0.25), math.log(0.25)], [0.0, 0.5])
    0.25
    """
    most = max(logprobs)
    weights = [math.exp(logprob - most) for logprob in logprobs]
    return math.fsum(w * r for w, r in zip(weights, regrets, strict=True)) / math.fsum(weights)


def parts_of(text: str, sentences: Sequence[Span], board: chess.Board) -> list[Span]:
    """What can be taken out before the box: sentences, and each move of what is only a list of moves.

    >>> text = "<think>A pawn moves.\\ne2e4 d2d4</think>\\\\boxed{e2e4}"
    >>> [text[slice(*part)] for part in parts_of(text, [(7, 20)], chess.Board())]
    ['A pawn moves.', 'e2e4', 'd2d4']
    """
    end = len(before_answer(text))
    moves = [(named.start, named.end) for named in named_moves(text[:end], board)]
    parts = []
    for start, stop in ((start, min(stop, end)) for start, stop in sentences if start < end):
        rest = list(text[start:stop])
        for place in (p for move in moves for p in range(*move) if start <= p < stop):
            rest[place - start] = " "
        if any(character.isalnum() for character in "".join(rest)):
            parts.append((start, stop))
    listed = [move for move in moves if not any(start <= move[0] < stop for start, stop in parts)]
    return sorted([*parts, *listed])[:MAX_PARTS]


def without(text: str, part: Span) -> str:
    """The text without a part, and without one of the white spaces around it: a line break stays.

    >>> without("One. Two. Three.", (5, 9)), without("<think>e2e4 d2d4</think>", (12, 16))
    ('One. Three.', '<think>e2e4</think>')
    """
    head, tail = text[: part[0]], text[part[1] :]
    before, after = head[len(head.rstrip()) :], tail[: len(tail) - len(tail.lstrip())]
    head, tail = head.rstrip(), tail.lstrip()
    inside = head and head[-1] != ">" and tail and not tail.startswith("</")
    return head + (max(before, after, key=lambda space: space.count("\n")) if inside else "") + tail


def reasoning_before(text: str, opening: str) -> tuple[str, str]:
    """The text before the box, without the mark that the prompt ends with, and the space before the box."""
    before = text[: len(before_answer(text))].removeprefix(opening)
    return before.rstrip(), before[len(before.rstrip()) :]


async def choices(
    client: InferenceClient,
    prompt_token_ids: Sequence[int],
    beginnings: Sequence[str],
    moves: Sequence[JudgedMove],
    *,
    space: str,
    notation: str,
    model: str,
) -> list[ChoiceDistribution]:
    """What the version chooses after each beginning, with the moves in `notation`, `uci` or `san`.

    What is written behind the move does not count, unless one move begins another, as O-O does O-O-O.
    """
    endings = [getattr(judged.move, notation) for judged in moves]
    if any(one != other and other.startswith(one) for one in endings for other in endings):
        endings = [f"{ending}}}" for ending in endings]
    rows = await client.ending_logprobs(prompt_token_ids, beginnings, endings, lead=space + BOX, model=model)
    regrets = [judged.regret for judged in moves]
    return [ChoiceDistribution(tuple(row), expected_regret(row, regrets)) for row in rows]


Slot = TypeVar("Slot")


async def effects_of(
    client: InferenceClient,
    prompt_token_ids: Sequence[int],
    answers: Mapping[Slot, tuple[str, Verdict]],
    *,
    model: str,
) -> dict[Slot, tuple[Effect, ...]]:
    """The effects of the sentences of legal answers to one position, and of the whole reasoning of each, over
    the moves of all of them. (With the engine's best, whatever makes the version less sure of its own moves
    would seem to help.) Sentences without a claim that earns or costs anything are left out, and so is all if
    there is but one move. Raises as `InferenceClient.ending_logprobs` does."""
    judged = dict[str, JudgedMove]()
    for _, verdict in answers.values():
        if verdict.move is not None and verdict.regret is not None:
            judged[verdict.move.uci] = JudgedMove(verdict.move, verdict.regret)
    spans = {slot: _claiming(text, verdict) for slot, (text, verdict) in answers.items()}
    if len(judged) < 2 or not any(spans.values()):
        return dict.fromkeys(answers, ())
    opening = await client.opening_of(prompt_token_ids)
    texts = {
        slot: [text, empty_reasoning(text) + BOX, *(without(text, s) for s in spans[slot])]
        for slot, (text, _) in answers.items()
    }
    beginnings = {slot: [reasoning_before(t, opening)[0] for t in row] for slot, row in texts.items()}
    first, verdict = next(iter(answers.values()))
    asked = list(dict.fromkeys(chain.from_iterable(beginnings.values())))
    chosen = await choices(
        client,
        prompt_token_ids,
        asked,
        [judged[uci] for uci in sorted(judged)],
        space=reasoning_before(first, opening)[1],
        notation="uci" if verdict.move and f"{{{verdict.move.uci}}}" in first else "san",
        model=model,
    )
    regrets = {beginning: choice.regret for beginning, choice in zip(asked, chosen, strict=True)}
    return {
        slot: (
            Effect(0, 0, regrets[none] - regrets[whole]),
            *(Effect(*s, regrets[b] - regrets[whole]) for s, b in zip(spans[slot], shorter, strict=True)),
        )
        for slot, (whole, none, *shorter) in beginnings.items()
    }


def _claiming(text: str, verdict: Verdict) -> list[Span]:
    """The sentences before the box with a claim that is false, or true and worth something."""
    end = len(before_answer(text))
    return [
        (sentence.start, sentence.end)
        for sentence in verdict.sentences
        if sentence.end <= end
        and any(c.true is False or (c.true and c.weight != 0.0) for c in sentence.claims)
    ][:MAX_PARTS]

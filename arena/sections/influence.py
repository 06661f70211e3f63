"""Influence: whether the reasoning, and each part of it, changes the choice of the move.

It asks the player again about its greedy answers to the positions, with parts of the reasoning taken out, and
with the reasoning of another position (`rookery.influence`). Only language models on vLLM can be asked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import chess
from pydantic import TypeAdapter

from arena.answers import Answers, read_claims
from arena.asking import Asker, Variant, style_of
from arena.players.dialogue import ToolsPlayer
from arena.players.model import ModelPlayer
from arena.players.player import Player
from arena.stats import Ratio
from arena.tables import METRICS, Section, Table, compared
from rookery.answers import empty_reasoning
from rookery.clients import ScoreItem
from rookery.influence import (
    BOX,
    ChoiceDistribution,
    JudgedMove,
    Span,
    choices,
    parts_of,
    reasoning_before,
    without,
)
from rookery.prompt import LINES, render
from rookery.trace import Move, Position

MATTERS = 0.01
"""A part matters if the expected regret without it differs by so much."""

_NOTE = (
    "Greedy answers with a legal move and text before the box. The same model is asked for the "
    "log-probability of each legal move in the box after its text, the text without a sentence or a "
    "candidate, the text of another position (placebo), and none. The expected regret is over the legal "
    f"moves. A part matters if the expected regret without it differs by {MATTERS} or more."
)


@dataclass(frozen=True, slots=True)
class Part:
    """A sentence or a candidate. `true`: whether its claims are; None if the rules decide none of them."""

    span: Span
    true: bool | None
    without: ChoiceDistribution


@dataclass(frozen=True, slots=True)
class Influences:
    """What a player would choose at a position after its own text and the altered ones. `answer` is the place
    of its move among the judged ones."""

    position: str
    answer: int
    whole: ChoiceDistribution
    none: ChoiceDistribution
    placebo: ChoiceDistribution
    parts: tuple[Part, ...]

    def effect(self, part: Part) -> float:
        """The expected regret that the part saves."""
        return part.without.regret - self.whole.regret

    def matters(self, part: Part) -> bool:
        return abs(self.effect(part)) >= MATTERS


_INFLUENCES = TypeAdapter(Influences)


@dataclass(frozen=True, slots=True)
class Influence:
    """The positions, asked as the section Positions asks, so that its answers are used."""

    chosen: Sequence[Position]
    samples: int
    seed: int
    name: str = "influence"

    async def ask(self, asker: Asker, player: Player) -> list[Influences | None]:
        """The player's influences by position; None where there is no legal answer with text. See
        `Asker.positions` for the errors."""
        style = style_of(player)
        if not isinstance(player, ModelPlayer) or style in LINES or not await asker.continues(player):
            return []
        plain = [replace(position, task="", move="") for position in self.chosen]
        answered = await asker.positions(player, plain, Variant("move", style, self.samples, ranks=True))
        texts = [reasoning_before(answers.greedy.text, "")[0] for answers in answered]
        altered = [(a, next_text(texts, place)) for place, a in enumerate(answered)]
        return await asker.each(lambda pair: _influences(asker, player, *pair), altered)

    def names(self, player: Player) -> list[str]:
        if isinstance(player, ToolsPlayer) or style_of(player) in {None, *LINES}:
            return []
        return 2 * [position.id for position in self.chosen]

    def section(
        self, answers: Mapping[str, Sequence[Influences | None]], *, players: Sequence[str]
    ) -> Section:
        """The tables of all players. The first of `players` is the baseline."""
        sides = {name: side for name, side in answers.items() if side}
        metrics = METRICS["influence"]
        rows = [
            (metrics[key], {name: Ratio.of_values(value, side) for name, side in sides.items()})
            for key, value in _ANSWER_METRICS.items()
        ]
        rows += [
            (metrics[key], {name: _over_parts(part, whole, side) for name, side in sides.items()})
            for key, (part, whole) in _PART_METRICS.items()
        ]
        tables = [
            Table("metrics", "Influence of the reasoning", compared(rows, players=players, seed=self.seed))
        ]
        facts = {name: [_facts(one) for one in side if one] for name, side in sides.items()}
        return Section(
            "influence", "Influence", _NOTE, [table for table in tables if table.rows], {"answers": facts}
        )


def next_text(texts: Sequence[str], place: int) -> str:
    """The reasoning of the next position that has another one than this."""
    later = [*texts[place + 1 :], *texts[:place]]
    return next((text for text in later if text and text != texts[place]), "")


async def _judged_moves(asker: Asker, fen: str) -> list[JudgedMove]:
    board = chess.Board(fen)
    moves = [Move(move.uci(), board.san(move)) for move in board.legal_moves]
    verdicts = await asker.reward.score([ScoreItem(fen, f"\\boxed{{{move.uci}}}") for move in moves])
    return [JudgedMove(move, verdict.regret or 0.0) for move, verdict in zip(moves, verdicts, strict=True)]


async def _influences(asker: Asker, player: ModelPlayer, answers: Answers, placebo: str) -> Influences | None:
    text, move = answers.greedy.text, answers.greedy.verdict.move
    if move is None or not reasoning_before(text, "")[0]:
        return None
    reading = read_claims(answers.greedy, answers.fen)
    sentences = (
        {(sentence.start, sentence.end): sentence for sentence in reading.sentences} if reading else {}
    )
    spans = parts_of(text, list(sentences), chess.Board(answers.fen))
    question = {
        "influence": 2,
        "position": [answers.position.id, answers.position.fen, *answers.position.last_moves],
        "texts": [text, placebo, *spans],
        "reward_version": asker.reward_version,
    }

    async def ask() -> dict[str, Any]:
        moves = await _judged_moves(asker, answers.fen)
        tokens = await player.prompt_tokens(render(answers.position, style=player.style))
        opening = await player.client.opening_of(tokens, thinking=player.thinking)
        whole, space = reasoning_before(text, opening)
        altered = [empty_reasoning(text) + BOX, *(without(text, span) for span in spans)]
        whole_choice, placebo_choice, none, *shorter = await choices(
            player.client,
            tokens,
            [whole, placebo.removeprefix(opening), *(reasoning_before(t, opening)[0] for t in altered)],
            moves,
            space=space,
            notation="uci" if f"{{{move.uci}}}" in text else "san",
            model=player.model,
        )
        parts = [
            Part(span, _truth([c.true for c in sentences[span].claims] if span in sentences else []), choice)
            for span, choice in zip(spans, shorter, strict=True)
        ]
        place = [judged.move.uci for judged in moves].index(move.uci)
        return asdict(
            Influences(
                answers.position.id,
                answer=place,
                whole=whole_choice,
                none=none,
                placebo=placebo_choice,
                parts=tuple(parts),
            )
        )

    record = await asker.recall(player, answers.position.id, question, ask)
    return _INFLUENCES.validate_python({name: record[name] for name in Influences.__slots__})


def _truth(claims: Sequence[bool | None]) -> bool | None:
    decided = [true for true in claims if true is not None]
    return all(decided) if decided else None


def _over_parts(
    counted: Callable[[Influences, Part], bool],
    among: Callable[[Part], bool],
    side: Sequence[Influences | None],
) -> Ratio:
    parts = [[(one, part) for part in one.parts if among(part)] if one else [] for one in side]
    return Ratio.of([sum(counted(*pair) for pair in row) for row in parts], [len(row) for row in parts])


def _logprob_gain(other: str) -> Callable[[Influences], float]:
    return lambda one: one.whole.logprobs[one.answer] - getattr(one, other).logprobs[one.answer]


_ANSWER_METRICS: Mapping[str, Callable[[Influences], float]] = {
    "regret_whole": lambda one: one.whole.regret,
    "regret_placebo": lambda one: one.placebo.regret,
    "regret_none": lambda one: one.none.regret,
    "gain_over_none": lambda one: one.none.regret - one.whole.regret,
    "gain_over_placebo": lambda one: one.placebo.regret - one.whole.regret,
    "logprob_over_none": _logprob_gain("none"),
    "logprob_over_placebo": _logprob_gain("placebo"),
    "parts": lambda one: len(one.parts),
}

_PART_METRICS: Mapping[str, tuple[Callable[[Influences, Part], bool], Callable[[Part], bool]]] = {
    "matter": (lambda one, part: one.matters(part), lambda part: True),
    "help": (lambda one, part: one.effect(part) >= MATTERS, lambda part: True),
    "true_and_matter": (
        lambda one, part: part.true is True and one.matters(part),
        lambda part: part.true is not None,
    ),
}
"""Each metric as the parts that count, and those that they are a share of."""


def _facts(one: Influences) -> dict[str, Any]:
    """What report.json tells of an answer: the regret that the whole text and each part save."""
    parts = [
        {
            "start": part.span[0],
            "end": part.span[1],
            "true": part.true,
            "regret": one.effect(part),
            "logprob": one.whole.logprobs[one.answer] - part.without.logprobs[one.answer],
        }
        for part in one.parts
    ]
    gains = {name: _ANSWER_METRICS[name](one) for name in ("gain_over_none", "gain_over_placebo")}
    return {"position": one.position, **gains, "parts": parts}

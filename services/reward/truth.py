"""The terms `truth` and `influence`: what the text of an answer claims about the position, how much of that
is true, and what it changes in the choice of the move.

Claims are read by `commentary.read`, which checks them with the rules of chess alone: no engine is asked, so
claims about scores stay open. Text that it cannot read is neither rewarded nor punished.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from statistics import fmean

import commentary
from commentary.concept import CONCEPTS
from rookery.answers import text_to_read
from rookery.errors import InvalidInput
from rookery.trace import Claim, Effect, Sentence

READ_CHARS = 4000
"""Characters before the box that are read. The slowest text known takes a third of a second."""

HALF = 3.0
"""The weight of the true claims that earn half of what can be earned."""

FALSE_CLAIMS = 4
"""So many false claims cost everything: such a text is worth less than none, whatever else is in it.

A claim that is true as often as false earns nothing, even if it is the first one and has the full weight."""

GIVEN = frozenset(
    {"candidate", "candidates", "choice", "legal replies"}
    | {"castling rights", "castling rights on both sides", "can castle", "cannot castle"}
    | {"own piece", "piece on a file", "side to move"}
    | {name for name, concept in CONCEPTS.items() if concept.topic == "given"}
)
"""Concepts that a FEN, a list of legal moves or the answer itself states. To repeat it earns nothing."""


def read_reasoning(fen: str, response: str, uci: str) -> commentary.TextReading:
    """Reads what `response` says before its box about the position; `uci` is the move in the box. Raises
    `InvalidInput` if the position is one of Chess960, which the reader does not know."""
    try:
        return commentary.read(fen, text_to_read(response, uci, chars=READ_CHARS))
    except ValueError as error:
        raise InvalidInput(f"scheme truth cannot read about {fen!r}: {error}") from error


def truth_of(reading: commentary.TextReading) -> float:
    """Truths / (truths + 3) - falsehoods / 4, at least -1; 0 for a text without claims.

    Equal claims count once. Truths are a sum of weights up to 1, halved for each further claim of the same
    concept, the heaviest first. Falsehoods are a number.
    """
    weights: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for claim in reading.claims:
        if claim.true:
            weights[claim.concept][claim.key] = _weight(claim)
    truths = sum(
        weight * 0.5**repeated
        for by_key in weights.values()
        for repeated, weight in enumerate(sorted(by_key.values(), reverse=True))
    )
    falsehoods = len({claim.key for claim in reading.false})
    return max(-1.0, truths / (truths + HALF) - falsehoods / FALSE_CLAIMS)


MAX_EFFECTS = 256
"""More sentences are not measured."""

Influences = dict[tuple[int, int], float]
"""What sentences earn, by their places."""


def influence_of(reading: commentary.TextReading, effects: Sequence[Effect], *, place: str) -> Influences:
    """What each sentence earns whose effect is known: e, the expected regret that it saves, times its truth.

    If a claim of it is false, this is -|e|: a false sentence never earns anything, even if it helps. Else it
    is e times the mean weight of its claims, 0 for what is given. Together, sentences earn at most what the
    whole reasoning saves, and are scaled down to that, so a text that first misleads and then corrects itself
    earns nothing for that. Raises `InvalidInput` if an effect is not in [-1, 1].
    """
    if len(effects) > MAX_EFFECTS or not all(-1.0 <= effect.regret <= 1.0 for effect in effects):
        raise InvalidInput(f"{place}: effects must be at most {MAX_EFFECTS}, of a regret in [-1, 1]")
    regrets = {(effect.start, effect.end): effect.regret for effect in effects}
    values: Influences = {}
    for sentence in reading.sentences:
        span = sentence.start, sentence.end
        decided = [claim for claim in sentence.claims if claim.true is not None]
        if span in regrets and decided:
            true = all(claim.true for claim in decided)
            values[span] = fmean(map(_weight, decided)) * regrets[span] if true else -abs(regrets[span])
    earned = math.fsum(value for value in values.values() if value > 0)
    gain = max(0.0, regrets.get((0, 0), 0.0))
    scale = min(1.0, gain / earned) if earned else 1.0
    return {span: value * scale if value > 0 else value for span, value in values.items()}


def _weight(claim: commentary.ReadClaim) -> float:
    return 0.0 if claim.concept in GIVEN else min(1.0, claim.weight)


def sentences_of(
    reading: commentary.TextReading, effects: Sequence[Effect] = (), influences: Influences | None = None
) -> tuple[Sentence, ...]:
    """The sentences as a verdict lists them."""
    regrets = {(effect.start, effect.end): effect.regret for effect in effects}
    influences = influences or {}
    return tuple(
        Sentence(
            sentence.start,
            sentence.end,
            sentence.status not in ("partly", "unread"),
            tuple(
                Claim(claim.concept, claim.start, claim.end, claim.true, weight=_weight(claim))
                for claim in sentence.claims
            ),
            effect=regrets.get((sentence.start, sentence.end)),
            influence=influences.get((sentence.start, sentence.end)),
        )
        for sentence in reading.sentences
    )


@cache
def reader_id() -> str:
    """The reader's part of `reward_version`: a hash of its source, because each concept changes rewards."""
    digest = hashlib.sha256()
    package = files(commentary)
    modules = [*package.iterdir(), *(package / "concepts").iterdir()]
    for module in sorted(modules, key=str):
        if module.name.endswith(".py"):
            digest.update(module.read_bytes())
    return f"commentary-{digest.hexdigest()[:12]}"

"""The orders of rank 0 to the others: JSON on the first line, then encoded groups. Never pickle."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

from rookery.codec import decode_group, encode_group
from rookery.trace import TraceGroup


@dataclass(frozen=True, slots=True)
class Begin:
    """Load the weights and moments of a commit and train with `settings`, which must be the same for all."""

    kind: ClassVar[str] = "begin"
    folder: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Files:
    """Take part in making the files of a commit, for which sharded tensors are gathered."""

    kind: ClassVar[str] = "files"


@dataclass(frozen=True, slots=True)
class Step:
    """Learn from a batch. `learner` is `Learner.as_json`. A rehearsal changes nothing."""

    kind: ClassVar[str] = "step"
    step: int
    learner: Mapping[str, Any]
    dropped_zero_variance: int
    groups: tuple[TraceGroup, ...]
    rehearsal: bool = False


Order: TypeAlias = Begin | Files | Step


def encode(order: Order) -> bytes:
    """Encodes an order for the wire. Floats keep every bit."""
    if not isinstance(order, Step):
        return json.dumps({"kind": order.kind, **asdict(order)}).encode()
    groups = [encode_group(group) for group in order.groups]
    head = {
        "kind": order.kind,
        "step": order.step,
        "learner": order.learner,
        "dropped_zero_variance": order.dropped_zero_variance,
        "rehearsal": order.rehearsal,
        "sizes": [len(group) for group in groups],
    }
    return b"\n".join([json.dumps(head).encode(), b"".join(groups)])


def decode(data: bytes) -> Order:
    """Decodes what `encode` returned."""
    line, _, rest = data.partition(b"\n")
    head = json.loads(line)
    kind = head.pop("kind")
    if kind == Begin.kind:
        return Begin(**head)
    if kind == Files.kind:
        return Files()
    groups, start = [], 0
    for size in head.pop("sizes"):
        groups.append(decode_group(rest[start : start + size]))
        start += size
    return Step(**head, groups=tuple(groups))

"""Optimizer settings shared by the trainer and by the commands that train on files."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator

AdamBits = Annotated[Literal[32, 8], BeforeValidator(int)]
"""Bits of Adam's moments. The validator converts the text of an environment variable."""

LrSchedule: TypeAlias = Literal["constant", "linear", "cosine"]
"""The learning rate's schedule after the warm-up."""

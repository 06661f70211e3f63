"""What moves the weights: settings that the trainer of a run and the commands on files share."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator

AdamBits = Annotated[Literal[32, 8], BeforeValidator(int)]
"""Of Adam's moments; an environment variable is a text."""

LrSchedule: TypeAlias = Literal["constant", "linear", "cosine"]
"""What follows the warm-up."""

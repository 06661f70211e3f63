"""Types of device settings."""

import re
from typing import Annotated

from pydantic import AfterValidator

_ONE = re.compile(r"auto|cpu|(?:cuda:)?(\d+)")


def _one(name: str) -> str:
    found = _ONE.fullmatch(name)
    if found is None:
        raise ValueError("is neither `auto`, `cpu` nor the index of a GPU")
    return found[1] or name


def _several(names: str) -> str:
    own = [_one(name) for name in names.split(",")]
    if len(own) > 1 and not all(map(str.isdigit, own)):
        raise ValueError("of several devices each is the index of a GPU")
    if len(set(own)) < len(own):
        raise ValueError("names a device twice")
    return ",".join(own)


Device = Annotated[str, AfterValidator(_one)]
"""`auto`, `cpu` or the index of a GPU. `cuda:0` is converted to 0."""

Devices = Annotated[str, AfterValidator(_several)]
"""Like `Device`, or the indices of several GPUs, separated by commas."""

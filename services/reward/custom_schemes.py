"""Reward functions of users as terms of schemes: in Python, by an entry point, or behind an HTTP address.

`--schemes` names them, separated by commas:

    my_module:brevity              a function; its name is that of the term
    brief=my_module:brevity        the same, as `brief`
    brevity                        the entry point `brevity` of the group `rookery.reward_schemes`
    brief=http://localhost:9000    a server

A function has the signature of TRL's: `brevity(completions, *, fen, move, **kwargs) -> list[float]`. It is
called with all legal answers to a position at once; `move` has their moves in UCI. The attributes `low` and
`high` (0 and 1) of the function are the bounds of its values. `version` is part of `reward_version`, by
default the SHA-256 of the module's source.

A server answers `GET` with an object of the same three names, and `POST` of `{"completions": [...], "fen":
[...], "move": [...]}` with `{"version": ..., "rewards": [...]}`.

An exception, a value out of bounds or a server's new version is a fault, never a reward.
"""

import asyncio
import hashlib
import importlib
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx

from rookery.errors import PeerFault, SetupError, cause_message
from rookery.http_pool import HttpPool
from rookery.schemes import TERMS, Term

GROUP = "rookery.reward_schemes"
"""The group of entry points."""

TIMEOUT_S = 60.0
"""For one answer of a server or function. The thread of a function that takes longer goes on."""

Asked = Callable[[dict[str, list[str]]], Awaitable[Any]]

_NAME = r"[a-z][a-z0-9_]*"
_SPEC = re.compile(rf"(?:({_NAME})=)?(https?://.+|[\w.]+:\w+|{_NAME})")


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomTerm(Term):
    """A user's function. `ask` gives its values for a FEN, completions and their moves. `unavailable_reason`
    says why a user's server cannot be asked now. `close` closes the connections to it."""

    ask: Callable[[str, Sequence[str], Sequence[str]], Awaitable[list[float]]]
    unavailable_reason: Callable[[], Awaitable[str | None]] = _nothing
    close: Callable[[], Awaitable[None]] = _nothing


async def load_terms(specs: str) -> tuple[CustomTerm, ...]:
    """The terms that `--schemes` names. Raises `SetupError` if a function cannot be imported, a server does
    not answer, or a name or bound is not valid."""
    terms = [await _load(spec) for spec in filter(None, map(str.strip, specs.split(",")))]
    names = [term.name for term in terms]
    for name in names:
        if not re.fullmatch(_NAME, name):
            raise SetupError(f"--schemes {specs!r}: no scheme can name {name!r}, write another_name=...")
        if name in TERMS or name in ("length", "candidates", "values", "graded") or names.count(name) > 1:
            raise SetupError(f"--schemes {specs!r}: the name {name!r} is taken, write another_name=...")
    return tuple(terms)


async def _load(spec: str) -> CustomTerm:
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise SetupError(
            f"--schemes: {spec!r} is not a module:function, an entry point or a URL, with or without NAME="
        )
    name, place = match[1] or "", match[2]
    if place.startswith("http"):
        if not name:
            raise SetupError(f"--schemes: {spec!r} has no name: write name={spec}")
        return await _of_server(name, place)
    if ":" not in place:
        points = entry_points(group=GROUP, name=place)
        if not points:
            raise SetupError(f"--schemes: no entry point {place!r} in the group {GROUP!r}")
        name, place = name or place, next(iter(points)).value
    return _of_function(name, place)


def _of_function(name: str, place: str) -> CustomTerm:
    module_name, _, function_name = place.partition(":")
    try:
        module = importlib.import_module(module_name)
        function = getattr(module, function_name)
        source = Path(inspect.getfile(module)).read_bytes()
    except Exception as error:  # whatever the user's module raises
        raise SetupError(f"--schemes: cannot import {place!r}: {cause_message(error)}") from error
    card = {key: getattr(function, key) for key in ("version", "low", "high") if hasattr(function, key)}

    def call(columns: dict[str, list[str]]) -> Any:
        try:
            return function(**columns)
        except BaseException as error:
            # A future cannot have a StopIteration, and SystemExit would end the process.
            raise PeerFault(cause_message(error)) from None

    async def ask(columns: dict[str, list[str]]) -> Any:
        values = await asyncio.to_thread(call, columns)
        return await values if inspect.isawaitable(values) else values

    return _term(name or function_name, {"version": hashlib.sha256(source).hexdigest()[:12]} | card, ask)


async def _of_server(name: str, url: str) -> CustomTerm:
    http = HttpPool(url, timeout_s=TIMEOUT_S)

    async def call(method: str, body: object = None) -> dict[str, Any]:
        response = await http.request(method, url, json=body)  # the whole URL: httpx adds a slash to a base
        response.raise_for_status()
        return dict(response.json())

    try:
        card = await call("GET")
    except (httpx.HTTPError, ValueError, TypeError) as error:
        raise SetupError(f"--schemes: {url} does not answer: {cause_message(error)}") from error
    if "version" not in card:
        raise SetupError(f"--schemes: {url} names no version: {str(card)[:200]}")

    async def ask(columns: dict[str, list[str]]) -> Any:
        answered = await call("POST", columns)
        if answered["version"] != card["version"]:
            raise ValueError(f"version {answered['version']!r}, but it was {card['version']!r}: start again")
        return answered["rewards"]

    async def unavailable_reason() -> str | None:
        try:
            answered = await call("GET")
        except (httpx.HTTPError, ValueError, TypeError) as error:
            return f"scheme {name!r}: {cause_message(error)}"
        change = f"scheme {name!r}: the server is now {str(answered)[:200]}, start again"
        return None if answered == card else change

    return replace(_term(name, card, ask), unavailable_reason=unavailable_reason, close=http.aclose)


def _term(name: str, card: dict[str, Any], ask: Asked) -> CustomTerm:
    try:
        low, high, version = float(card.get("low", 0)), float(card.get("high", 1)), str(card["version"])
    except (TypeError, ValueError) as error:
        raise SetupError(f"--schemes: {name}: {error}: {str(card)[:200]}") from error
    if not (
        math.isfinite(low) and math.isfinite(high) and low < high and re.fullmatch(r"[\w.]{1,64}", version)
    ):
        raise SetupError(f"--schemes: {name} needs finite bounds low < high and a short version, not {card}")

    async def values(fen: str, completions: Sequence[str], moves: Sequence[str]) -> list[float]:
        columns = {"completions": list(completions), "fen": [fen] * len(moves), "move": list(moves)}
        try:
            async with asyncio.timeout(TIMEOUT_S):
                rewards = [float(value) for value in await ask(columns)]
        except Exception as error:  # whatever the user's function raises: a fault, never a reward
            raise PeerFault(f"scheme {name!r}: {cause_message(error)}") from error
        if len(rewards) != len(moves) or not all(low <= value <= high for value in rewards):
            raise PeerFault(
                f"scheme {name!r}: not {len(moves)} values in [{low}, {high}]: {str(rewards)[:200]}"
            )
        return rewards

    return CustomTerm(
        name, version, low, high, value=lambda evidence: evidence.custom[name], uses="custom", ask=values
    )

"""Which policy versions are served, and how a new version replaces the current one.

Every version is a LoRA adapter with its own immutable name (`policy-v000042`); the alias `policy` names the
version served last. A request keeps the adapter it started with, so a reload neither pauses nor drains
requests. This module uses neither HTTP nor Redis, and of vLLM only the methods of `VllmEngine`.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rookery.canary import Agreement, Canary, Rows
from rookery.errors import Conflict, InvalidInput, NotFound, RookeryError, Unavailable
from rookery.metrics import RELOAD_SECONDS, RELOADS, SERVED_VERSION
from rookery.trace import Adapter, PolicyVersion

if TYPE_CHECKING:
    from services.inference.server.engine import VllmEngine

logger = logging.getLogger(__name__)

ALIAS = "policy"
"""The model name that always refers to the version served last."""

RETIRE_AFTER_S = 2.0
"""How long a version without a name is kept before the first check whether a request still uses it. A request
may have looked up its version but not reached the engine yet."""


class VersionChecks(Protocol):
    """The checks that a version on disk must pass."""

    def verify(self, adapter: Adapter) -> Adapter:
        """Returns the version with its path resolved. Slow: reads the weights. Raises `InvalidInput` if the
        version fails a check."""
        ...

    def must_differ(self, adapter: Adapter) -> bool:
        """Whether an answer equal to the base model's proves that the version is not applied. Slow."""
        ...


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """The result of a reload.

    `seconds` has the time of each stage, `canary_max_difference` the largest difference between the canary's
    log-probabilities and the base model's, and `agreement` compares it with the trainer's if the version came
    with a canary of its own. `changed` is False if the version was already served.
    """

    adapter: Adapter
    changed: bool
    seconds: dict[str, float] = field(default_factory=dict)
    canary_max_difference: float | None = None
    agreement: Agreement | None = None


@dataclass(frozen=True, slots=True)
class _Check:
    """What a loaded version's answers are compared with: the base's answer to the canary; the version's own
    canary, and the answers of the engine's base to that."""

    base: tuple[float, ...]
    canary: Canary | None
    bases: list[Rows]


class Policies:
    """The versions in the engine, and which one is served. Reloads run one at a time."""

    def __init__(self, engine: "VllmEngine", rules: VersionChecks, *, keep: int, leases: int = 0) -> None:
        """`keep` is how many of the newest versions are served, `leases` how many others besides."""
        self._engine = engine
        self._rules = rules
        self._keep = keep
        self._lease_slots = leases
        self._leases: dict[Adapter, float] = {}  # the time at which each ends
        self._lock = asyncio.Lock()
        self._named: list[Adapter] = []  # by number; the last one is served
        self._retired: dict[Adapter, float] = {}  # the time at which each lost its name
        self._base_canary: tuple[float, ...] | None = None
        self._base_answers: tuple[list[int], list[Rows]] | None = None  # with the canary's tokens
        self._warm = False

    @property
    def served(self) -> Adapter | None:
        """The version behind the alias, or None before the first."""
        return self._named[-1] if self._named else None

    @property
    def prepared(self) -> bool:
        """Whether the base model has answered the canary."""
        return self._base_canary is not None

    async def reload(self, adapter: Adapter, *, rollback: bool = False) -> ReloadResult:
        """Serves `adapter` from now on. If anything fails, the current policy stays.

        With `rollback`, any version is accepted: an older one, or other bytes under a number that was
        already served. The names of all versions from that number on are removed, because a run that went
        back makes those versions again.

        Raises:
            Conflict: the served version has a higher number, or the same number and other bytes, and
                `rollback` is not set.
            InvalidInput: this server cannot serve the adapter.
            Unavailable: the engine failed; a retry may help.
        """
        async with self._lock, _counted():
            if self.served and self.served.version == adapter.version:
                RELOADS.labels("unchanged").inc()
                return ReloadResult(self.served, changed=False)
            self._check_order(adapter.version, rollback=rollback)
            reloaded = await self._reload(adapter)
            RELOADS.labels("loaded").inc()
            return reloaded

    def lease(self, number: int, *, seconds: float) -> Adapter:
        """Keeps a served version served for so long, though newer ones come. A second call renews the lease.

        Raises:
            NotFound: the version is not served.
            Conflict: other versions have all the leases.
        """
        self._keep_names(self._named)
        adapter = next((a for a in self._named if a.version.number == number), None)
        if adapter is None:
            served = ", ".join(str(a.version.number) for a in self._named) or "none"
            raise NotFound(f"version {number} is not served and cannot be leased; served: {served}")
        if adapter not in self._leases and len(self._leases) >= self._lease_slots:
            leased = ", ".join(a.version.name for a in self._leases) or "none"
            raise Conflict(
                f"version {number} cannot be leased: the leases of the server (leases={self._lease_slots}) "
                f"are taken by: {leased}"
            )
        self._leases[adapter] = time.monotonic() + seconds
        return adapter

    def end_lease(self, number: int) -> None:
        """Ends the lease of a version, if there is one. If newer ones have replaced it, its name goes."""
        self._leases = {a: end for a, end in self._leases.items() if a.version.number != number}
        self._keep_names(self._named)

    async def prepare(self) -> None:
        """Asks the base model the canary before the first reload: its kernels take seconds to compile."""
        async with self._lock:
            await self._base()

    async def unload_retired(self) -> None:
        """Ends the leases that have expired, and unloads the retired versions that no request uses."""
        self._keep_names(self._named)
        async with self._lock:
            for adapter, since in list(self._retired.items()):
                if time.monotonic() - since < RETIRE_AFTER_S or self._engine.in_use(adapter):
                    continue
                await self._engine.unload(adapter)
                del self._retired[adapter]
                logger.info("unloaded %s", adapter.version.name)

    def _check_order(self, version: PolicyVersion, *, rollback: bool) -> None:
        served = self.served.version if self.served else None
        if rollback or served is None or version.number > served.number:
            return
        if version.number == served.number:
            reason = (
                f"is served with sha256 {served.sha256}, not {version.sha256!r}: set rollback to replace it"
            )
        else:
            reason = f"is older than {served.number}: set rollback to go back to it"
        raise Conflict(f"version {version.number} {reason}")

    async def _reload(self, adapter: Adapter) -> ReloadResult:
        started, seconds = time.perf_counter(), dict[str, float]()
        with stage("verify", seconds):
            adapter = await asyncio.to_thread(self._rules.verify, adapter)
        base, difference, agreement = await self._base(), None, None
        canary = await asyncio.to_thread(Canary.read, Path(adapter.path))
        bases = await self._answers_of_base(canary) if canary else []
        async with self._exclusive(seconds):
            if loaded := self._loaded(adapter.version):
                adapter = loaded
            else:
                check = _Check(base, canary if bases else None, bases)
                difference, agreement = await self._load(adapter, check, seconds)
            with stage("flip", seconds):
                self._serve(adapter)
        seconds["total"] = time.perf_counter() - started
        logger.info("serving %s after %.3f s", adapter.version.name, seconds["total"], extra=seconds)
        return ReloadResult(adapter, True, seconds, canary_max_difference=difference, agreement=agreement)

    @asynccontextmanager
    async def _exclusive(self, seconds: dict[str, float]) -> AsyncIterator[None]:
        """Runs the block once a version may be loaded. A LoRA adapter can be loaded at any time."""
        yield

    def _loaded(self, version: PolicyVersion) -> Adapter | None:
        """The version in the engine's memory, or None if it must be loaded."""
        return next((a for a in (*self._named, *self._retired) if a.version == version), None)

    async def _load(
        self, adapter: Adapter, check: "_Check", seconds: dict[str, float]
    ) -> tuple[float, Agreement | None]:
        try:
            with stage("load", seconds):
                await self._engine.load(adapter)
            with stage("canary", seconds):
                difference = await self._check_canary(adapter, check.base)
                agreement = await self._compare(adapter, check)
            if not self._warm:
                with stage("warm_up", seconds):
                    await self._engine.warm_up(adapter)
                self._warm = True
        except BaseException as error:
            await self._undo_load(adapter, error)
            raise
        return difference, agreement

    async def _undo_load(self, adapter: Adapter, cause: BaseException) -> None:
        """Removes a version that failed after `cause`."""
        with suppress(Unavailable):
            await self._engine.unload(adapter)

    async def _base(self) -> tuple[float, ...]:
        if self._base_canary is None:
            self._base_canary = await self._engine.canary(None)
        return self._base_canary

    @property
    def _has_base(self) -> bool:
        """Whether the engine can answer as the base model."""
        return True

    async def _answers_of_base(self, canary: Canary) -> list[Rows]:
        """Two answers, in batches of different sizes; none if the engine cannot be asked any more."""
        if self._base_answers and self._base_answers[0] == canary.token_ids:
            return self._base_answers[1]
        if not self._has_base:
            return []
        answers = [
            await self._engine.answers_to(canary, None, together=together) for together in (True, False)
        ]
        self._base_answers = canary.token_ids, answers
        return answers

    async def _compare(self, adapter: Adapter, check: "_Check") -> Agreement | None:
        """Compares with what the trainer expects, if the version says it. Raises `InvalidInput` if the engine
        answers otherwise."""
        if check.canary is None:
            return None
        answer = await self._engine.answers_to(check.canary, adapter)
        agreement = check.canary.compare(answer, check.bases, precision=self._engine.precision)
        if agreement.fault:
            raise InvalidInput(f"{adapter.version.name} {agreement.fault}")
        return agreement

    async def _check_canary(self, adapter: Adapter, base: tuple[float, ...]) -> float:
        logprobs = await self._engine.canary(adapter)
        if not logprobs or not all(map(math.isfinite, logprobs)):
            raise InvalidInput(f"{adapter.version.name} answers the canary with {list(logprobs)}")
        difference = max(abs(a - b) for a, b in zip(logprobs, base, strict=True))
        if difference == 0:
            message = f"{adapter.version.name} answers the canary exactly as the base model does"
            if await asyncio.to_thread(self._rules.must_differ, adapter):
                raise InvalidInput(f"{message}, though {adapter.path} changes its weights: it is not applied")
            if adapter.version.number > 0:
                logger.warning(message)
        return difference

    def _serve(self, adapter: Adapter) -> None:
        earlier = [a for a in self._named if a.version.number < adapter.version.number]
        self._keep_names([*earlier, adapter])
        self._engine.route(adapter.version.name, adapter)
        self._engine.route(ALIAS, adapter)
        self._retired.pop(adapter, None)
        SERVED_VERSION.set(adapter.version.number)

    def _keep_names(self, versions: list[Adapter]) -> None:
        """Removes all names but those of the newest of `versions` and of those that are leased."""
        now = time.monotonic()
        self._leases = {a: end for a, end in self._leases.items() if end > now and a in versions}
        named = [a for a in versions if a in versions[-self._keep :] or a in self._leases]
        for old in self._named:
            if old not in named:
                self._engine.unroute(old.version.name)
                self._retired[old] = now
        self._named = named


@contextmanager
def stage(name: str, seconds: dict[str, float]) -> Iterator[None]:
    """Measures one stage of a reload, for the answer and for the metrics."""
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started
    RELOAD_SECONDS.labels(name).observe(seconds[name])


@asynccontextmanager
async def _counted() -> AsyncIterator[None]:
    try:
        yield
    except RookeryError as error:
        RELOADS.labels(error.kind).inc()
        raise

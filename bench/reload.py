"""`python -m bench.reload`: reloads under load, beside a restart.

Each reload is timed from the adapter lying on disk to the first token generated under it. Beside it stands
the start of the same server, which is what a new policy costs where adapters cannot be changed at run time.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chess
import httpx

from bench.noise_adapter import write_adapter
from launcher.plan import HOST
from launcher.services import as_flags
from launcher.supervisor import running
from rookery.clients import InferenceClient
from rookery.errors import RookeryError
from rookery.processes.child import ServiceCommand
from rookery.processes.ports import bind
from rookery.prompt import render
from rookery.trace import Adapter, Phase, Position, Sampling

PAUSE_S, WARM_UP_S = 0.3, 3.0
SHOWN_EVERY = 10
MAX_MODEL_LEN = 2048
"""Of prompt and completion. That of a model may be so long that a card has no room for one such request."""


@dataclass
class Load:
    """`callers` requests at a time, each for `group` completions; remembers how each one went."""

    client: InferenceClient
    callers: int
    group: int
    max_tokens: int
    model: str
    spans: list[tuple[float, float, int]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    async def run(self, stop: asyncio.Event) -> None:
        """Asks until stopped; every request in flight is answered."""
        await asyncio.gather(*(self._ask(stop, caller) for caller in range(self.callers)))

    async def _ask(self, stop: asyncio.Event, caller: int) -> None:
        sampling = Sampling(temperature=1.0, max_tokens=self.max_tokens)
        board, round_number = chess.Board(), 0
        while not stop.is_set():
            _move_on(board, caller + round_number)
            position = Position("bench", board.fen(), board.ply(), Phase.MIDDLEGAME, "bench")
            prompt = render(position, style="mover-squares")
            started = time.perf_counter()
            try:
                answer = await self.client.complete(
                    prompt, model=self.model, count=self.group, sampling=sampling, seed=round_number
                )
                tokens = sum(len(completion.token_ids) for completion in answer.completions)
                self.spans.append((started, time.perf_counter(), tokens))
            except RookeryError as error:
                self.failures.append(str(error))
            round_number += 1


def _move_on(board: chess.Board, choice: int) -> None:
    moves = list(board.legal_moves)
    if not moves or board.ply() > 80:
        board.reset()
        moves = list(board.legal_moves)
    board.push(moves[choice % len(moves)])


def main() -> None:
    """Measures and prints."""
    from services.trainer.tiny import build_tiny

    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="bench-reload-") as folder:
        root = Path(folder)
        model = arguments.model or build_tiny(root / "rook-tiny")
        figures = measure(
            model,
            root,
            versions=arguments.versions,
            callers=arguments.callers,
            group=arguments.group,
            max_tokens=arguments.max_tokens,
            device=arguments.device,
        )
    print(json.dumps(figures, indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.reload", description=__doc__)
    parser.add_argument("--model", type=Path, help="model directory; by default a random rook-tiny")
    parser.add_argument("--versions", type=int, default=30, help="reloads")
    parser.add_argument("--callers", type=int, default=8, help="requests in flight")
    parser.add_argument("--group", type=int, default=8, help="completions of a request")
    parser.add_argument("--max-tokens", type=int, default=32, help="of a completion")
    parser.add_argument("--device", default="auto", help="of the server, as its --device")
    return parser.parse_args()


def measure(
    model: Path, root: Path, *, versions: int, callers: int, group: int, max_tokens: int, device: str
) -> dict[str, Any]:
    """Serves `model`, and makes the reloads. The adapters are written to `root`."""
    adapters = [write_adapter(root / f"v{i}", model, version=i) for i in range(versions + 1)]
    started = time.perf_counter()
    with serving(model, root, device=device) as url:
        restart_s = time.perf_counter() - started
        result = asyncio.run(_measure(url, adapters, callers=callers, group=group, max_tokens=max_tokens))
    return _figures({**result, "restart_s": restart_s})


@contextmanager
def serving(model: Path, root: Path, *, device: str) -> Iterator[str]:
    """The URL of an inference server that accepts versions in `root`, where its log is."""
    with bind(HOST, 0, setting="") as probe:
        port = probe.getsockname()[1]
    flags = {"model": model, "follow": False, "host": HOST, "port": port, "adapter_root": root}
    flags |= {"device": device, "max_model_len": MAX_MODEL_LEN}
    command = ServiceCommand(
        "inference server",
        (sys.executable, "-m", "services.inference.server", *as_flags(flags)),
        root / "server.log",
        probe_url=f"http://{HOST}:{port}/readyz",
    )
    with running(command):
        yield f"http://{HOST}:{port}"


@asynccontextmanager
async def under_load(load: Load) -> AsyncIterator[None]:
    """The load during the block, which begins once it is in flight."""
    stop = asyncio.Event()
    calling = asyncio.create_task(load.run(stop))
    try:
        await asyncio.sleep(WARM_UP_S)
        yield
    finally:
        stop.set()
        await calling


async def _measure(
    url: str, adapters: list[Adapter], *, callers: int, group: int, max_tokens: int
) -> dict[str, Any]:
    times: list[tuple[float, float, float]] = []
    stages: list[dict[str, float]] = []
    async with InferenceClient(url) as client, httpx.AsyncClient(base_url=url, timeout=60.0) as http:
        await client.reload(adapters[0])
        load = Load(client, callers, group, max_tokens, "policy")
        async with under_load(load):
            for number, adapter in enumerate(adapters[1:], start=1):
                started = time.perf_counter()
                stages.append((await client.reload(adapter))["seconds"])
                loaded = time.perf_counter()
                await _first_token(http, adapter.version.name)
                times.append((started, loaded, time.perf_counter()))
                load.model = adapter.version.name
                if number % SHOWN_EVERY == 0:
                    print(f"{number} of {len(adapters) - 1} reloads", file=sys.stderr, flush=True)
                await asyncio.sleep(PAUSE_S)
    return {"times": times, "load": load, "stages": stages}


async def _first_token(http: httpx.AsyncClient, model: str) -> None:
    messages = [{"role": "user", "content": "RNBQKBNR"}]
    body = {"model": model, "messages": messages, "max_tokens": 1, "stream": True}
    async with http.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if '"content"' in line:
                return


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    times = result["times"]
    first_token_s = _spread([first - started for started, _, first in times])
    return {
        "restart_s": round(result["restart_s"], 2),
        "loaded_s": _spread([loaded - started for started, loaded, _ in times]),
        "first_token_s": first_token_s,
        "stages_p50_s": {
            stage: round(statistics.median(told[stage] for told in result["stages"]), 4)
            for stage in ("verify", "load", "canary", "flip")
        },
        "requests": _requests(result["load"], [(started, first) for started, _, first in times]),
        "reload_to_restart": round(first_token_s["p50"] / result["restart_s"], 4),
    }


def _requests(load: Load, windows: list[tuple[float, float]]) -> dict[str, Any]:
    """Whether a request that lived through a reload took longer than one that did not."""
    during: list[float] = []
    between: list[float] = []
    for begin, end, _ in load.spans:
        overlaps = any(begin < last and first < end for first, last in windows)
        (during if overlaps else between).append(end - begin)
    seconds = load.spans[-1][1] - load.spans[0][0]
    return {
        "answered": len(load.spans),
        "failed": len(load.failures),
        "tokens_per_s": round(sum(tokens for *_, tokens in load.spans) / seconds),
        "latency_during_a_reload_s": _spread(during),
        "latency_otherwise_s": _spread(between),
    }


def _spread(values: list[float]) -> dict[str, float | int]:
    if not values:
        return {"count": 0}
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {
        "count": len(ordered),
        "p50": round(statistics.median(ordered), 4),
        "p95": round(p95, 4),
        "max": round(ordered[-1], 4),
    }


if __name__ == "__main__":
    main()

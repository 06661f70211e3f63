"""`python -m bench.reload`: reloads under load, beside vLLM's own route and beside a restart.

Each reload is timed from the adapter lying on disk to the first token generated under it. The peers,
measured in the same run on the same server under the same load: vLLM's `/v1/load_lora_adapter`, which
neither verifies nor asks a canary, and the start of the server, which is what a new policy costs
where adapters cannot be changed at run time.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from bench.noise_adapter import write_adapter
from bench.reload.load import Load
from bench.reload.server import running
from rookery.clients import InferenceClient
from rookery.trace import Adapter

PAUSE_S = 0.3
BLOCK = 5
"""Ours and vLLM's route take turns in blocks of this many versions: both see the same machine."""

Loader = Callable[[Adapter], Awaitable[None]]


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="bench-reload-") as folder:
        root = Path(folder)
        model = arguments.model or _random_model(root)
        adapters = [
            write_adapter(root / f"v{i}", model, version=i) for i in range(2 * arguments.versions + 1)
        ]
        with running(model, root) as (url, start_s):
            result = asyncio.run(_measure(url, adapters, arguments))
        result["restart_s"] = start_s
    _report(result)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.reload", description=__doc__)
    parser.add_argument("--model", type=Path, help="model directory; by default a random rook-tiny")
    parser.add_argument("--versions", type=int, default=30, help="reloads by each route")
    parser.add_argument("--callers", type=int, default=8, help="requests in flight")
    parser.add_argument("--group", type=int, default=8, help="completions of a request")
    parser.add_argument("--max-tokens", type=int, default=32, help="of a completion")
    return parser.parse_args()


def _random_model(root: Path) -> Path:
    from services.trainer.tiny import build_tiny

    return build_tiny(root / "rook-tiny")


async def _measure(url: str, adapters: list[Adapter], arguments: argparse.Namespace) -> dict[str, Any]:
    times: dict[str, list[tuple[float, float, float]]] = {"reload": [], "load_lora_adapter": []}
    async with InferenceClient(url) as client, httpx.AsyncClient(base_url=url, timeout=60.0) as http:
        await client.reload(adapters[0])
        load = Load(client, arguments.callers, arguments.group, arguments.max_tokens, "policy")
        loaders: dict[str, Loader] = {
            "reload": lambda adapter: _reload(client, adapter),
            "load_lora_adapter": lambda adapter: _load_lora_adapter(http, adapter),
        }
        stop = asyncio.Event()
        calling = asyncio.create_task(load.run(stop))
        await asyncio.sleep(3.0)
        for index, adapter in enumerate(adapters[1:]):
            route = list(loaders)[index // BLOCK % 2]
            started = time.perf_counter()
            await loaders[route](adapter)
            loaded = time.perf_counter()
            await _first_token(http, adapter.version.name)
            times[route].append((started, loaded, time.perf_counter()))
            load.model = adapter.version.name
            await asyncio.sleep(PAUSE_S)
        stop.set()
        await calling
    return {"times": times, "load": load}


async def _reload(client: InferenceClient, adapter: Adapter) -> None:
    await client.reload(adapter)


async def _load_lora_adapter(http: httpx.AsyncClient, adapter: Adapter) -> None:
    body = {"lora_name": adapter.version.name, "lora_path": adapter.path}
    (await http.post("/v1/load_lora_adapter", json=body)).raise_for_status()


async def _first_token(http: httpx.AsyncClient, model: str) -> None:
    messages = [{"role": "user", "content": "RNBQKBNR"}]
    body = {"model": model, "messages": messages, "max_tokens": 1, "stream": True}
    async with http.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if '"content"' in line:
                return


def _report(result: dict[str, Any]) -> None:
    load: Load = result["load"]
    figures: dict[str, Any] = {"restart_s": round(result["restart_s"], 2)}
    for route, spans in result["times"].items():
        figures[route] = {
            "versions": len(spans),
            "loaded_s": _spread([loaded - started for started, loaded, _ in spans]),
            "first_token_s": _spread([first - started for started, _, first in spans]),
        }
    windows = [(started, first) for spans in result["times"].values() for started, _, first in spans]
    during: list[float] = []
    between: list[float] = []
    for begin, end, _ in load.spans:
        overlaps = any(begin < last and first < end for first, last in windows)
        (during if overlaps else between).append(end - begin)
    seconds = load.spans[-1][1] - load.spans[0][0]
    ours, peer = (
        figures["reload"]["first_token_s"]["p50"],
        figures["load_lora_adapter"]["first_token_s"]["p50"],
    )
    figures["requests"] = {
        "answered": len(load.spans),
        "failed": len(load.failures),
        "tokens_per_s": round(sum(tokens for *_, tokens in load.spans) / seconds),
        "latency_during_a_reload_s": _spread(during),
        "latency_otherwise_s": _spread(between),
    }
    figures["ratios"] = {
        "reload_to_load_lora_adapter": round(ours / peer, 2),
        "reload_to_restart": round(ours / figures["restart_s"], 4),
    }
    print(json.dumps(figures, indent=2))


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

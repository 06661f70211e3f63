"""Parts that are one inference server under load."""

import asyncio
import multiprocessing
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

from bench.gpu.suite import Figures, GpuSettings
from bench.noise_adapter import write_adapter
from bench.reload import Load, measure, serving, under_load
from rookery import devices
from rookery.canary import CANARY_FILE, MARGIN
from rookery.clients import InferenceClient
from rookery.errors import InvalidInput, RookeryError
from rookery.trace import Adapter

RANK = 8
SCALES = (0.0003, 0.003, 0.03)
"""Standard deviations of the adapters' B. rook-tiny's answers change by 0.1, 1 and 5 nats."""
KINDS = ("right", "not applied", "another's")
REPEATS = 4
"""How many versions of each scale and kind."""
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
CALLERS, GROUP, MAX_TOKENS = {True: 8, False: 32}, 8, 32
"""The load, on a CPU and on a GPU: requests, of so many completions, of so many tokens."""

Served: TypeAlias = list[tuple[str, float, dict[str, Any] | None]]
"""Kind and scale of each version, and what the server said of its canary; None if it refused the version."""


def reload(suite: GpuSettings) -> Figures:
    """Adapters of random weights, one after another, as `python -m bench.reload`."""
    yield from measure(
        suite.model_dir,
        suite.folder("reload"),
        versions=suite.versions,
        callers=CALLERS[suite.on_cpu],
        group=GROUP,
        max_tokens=MAX_TOKENS,
        device=suite.serving,
    ).items()


def canary(suite: GpuSettings) -> Figures:
    """Each version says in its canary.json what the trainer expects. Of those "not applied" B is 0, and those
    of "another's" have the weights of another version, as if the server had mixed them up."""
    folder, model = suite.folder("canary"), suite.model_dir
    # The trainer computes in a process that has ended when the server takes its share of the GPU.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        versions = pool.submit(make_versions, model, folder, suite.training).result()
    with serving(model, folder, device=suite.serving) as url:
        served = asyncio.run(_serve(url, versions, callers=CALLERS[suite.on_cpu]))
    figures = summary(served)
    yield from figures.items()
    if wrong := "; ".join(mistakes(figures)):
        raise RookeryError(wrong)


def make_versions(model: Path, folder: Path, device: str) -> list[tuple[str, float, Adapter]]:
    """Versions as the trainer commits them, each with its kind and scale. The first changes nothing."""
    devices.restrict(device)  # before torch is imported
    from safetensors.torch import load_file, save

    from rookery.config.trainer import TrainerSettings
    from services.trainer.distributed.process_group import World
    from services.trainer.model.policy import Policy
    from services.trainer.training.policy_trainer import PolicyTrainer
    from services.trainer.versions import commits

    settings = TrainerSettings(
        model=str(model), run_dir=folder, device=device, lora_rank=RANK, lora_alpha=2 * RANK
    )
    trainer = PolicyTrainer(settings, Policy(settings), World())
    made: list[tuple[str, float, Adapter]] = []

    def commit(kind: str, scale: float, files: dict[str, Any]) -> Path:
        version = commits.write(folder, number=len(made), files=files, ledger=(), fingerprint={})
        made.append((kind, scale, Adapter(version.version, str(version.folder), model.name)))
        return version.folder

    def files_of(scale: float) -> dict[str, Any]:
        source = folder / "weights" / f"{len(made)}-{scale}"
        write_adapter(source, model, version=len(made), rank=RANK, scale=scale)
        trainer.load(source)
        names = (WEIGHTS, CONFIG, CANARY_FILE)
        return {name: content for name, content in trainer.files().items() if name in names}

    commit(KINDS[0], 0.0, files_of(0.0))
    for scale in SCALES * REPEATS:
        others = load_file(commit(KINDS[0], scale, files_of(scale)) / WEIGHTS)
        files = files_of(scale)
        weights = load_file(commit(KINDS[0], scale, files) / WEIGHTS)
        unapplied = {name: 0 * tensor if "lora_B" in name else tensor for name, tensor in weights.items()}
        commit(KINDS[1], scale, {**files, WEIGHTS: save(unapplied)})
        commit(KINDS[2], scale, {**files, WEIGHTS: save(others)})
    return made


async def _serve(url: str, versions: list[tuple[str, float, Adapter]], *, callers: int) -> Served:
    served: Served = []
    async with InferenceClient(url) as client:
        await client.reload(versions[0][2])
        async with under_load(Load(client, callers, GROUP, MAX_TOKENS, "policy")):
            for kind, scale, adapter in versions[1:]:
                comparison, outcome = None, "served"
                try:
                    comparison = (await client.reload(adapter))["canary"]
                except InvalidInput as error:
                    outcome = f"refused: {error}"
                print(f"{adapter.version.name}, {kind}, scale {scale}: {outcome}", flush=True)
                served.append((kind, scale, comparison))
    return served


def summary(served: Served) -> dict[str, dict[str, Any]]:
    """Counts by kind and scale, and the extremes of what was compared."""
    figures: dict[str, dict[str, Any]] = {}
    compared: defaultdict[float, list[dict[str, Any]]] = defaultdict(list)
    for kind, scale, canary in served:
        counts = figures.setdefault(f"{kind}, {scale}", {"served": 0, "refused": 0})
        counts["refused" if canary is None else "served"] += 1
        if canary and kind == KINDS[0]:
            compared[scale].append(canary)
    for scale, canaries in compared.items():
        figures[f"{KINDS[0]}, {scale}"] |= {
            "noise, at most": max(canary["noise"] for canary in canaries),
            "shift, at least": min(canary["shift"] for canary in canaries),
            "distance, at most": max(canary["distance"] for canary in canaries),
            "applied, at least": min(canary["applied"] for canary in canaries),
        }
    return figures


def mistakes(figures: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Right versions that were refused, and wrong ones that were served although right ones of their scale
    change the answers by twice what the server can take for noise."""
    for scale in SCALES:
        right = figures[f"{KINDS[0]}, {scale}"]
        if right["refused"]:
            yield f"{right['refused']} right versions of scale {scale} were refused"
        if right.get("shift, at least", 0.0) > 2 * MARGIN * right.get("noise, at most", 0.0):
            for kind in KINDS[1:]:
                if served := figures[f"{kind}, {scale}"]["served"]:
                    yield f"{served} versions of scale {scale} were served though they are {kind}"

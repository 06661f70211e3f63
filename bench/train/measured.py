"""What one side says of one piece of work. Light: the peer's environment imports it too."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Measured:
    """Of each measured step its seconds, by the clock and of the process's own; memory in MiB: before the
    first step, and the process's peak.
    """

    samples: int
    step_s: list[float]
    cpu_s: list[float]
    resident_mib: float
    peak_mib: float

    @property
    def samples_per_s(self) -> float:
        """Over all measured steps."""
        return self.samples * len(self.step_s) / sum(self.step_s)

    @property
    def samples_per_cpu_s(self) -> float:
        """What others on the machine hardly touch."""
        return self.samples * len(self.cpu_s) / sum(self.cpu_s)

    @property
    def own_mib(self) -> float:
        """What training took beside interpreter, libraries and model."""
        return self.peak_mib - self.resident_mib


def resident_mib(key: str = "VmRSS") -> float:
    """Of this process; `VmHWM` is its highest ever."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"no {key} in /proc/self/status")


def say(result: Measured) -> None:
    """As the last line of stdout."""
    sys.stdout.write(f"\n{json.dumps(asdict(result))}\n")


def hear(stdout: str) -> Measured:
    """The inverse."""
    return Measured(**json.loads(stdout.splitlines()[-1]))

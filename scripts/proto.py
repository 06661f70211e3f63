"""Generates `rookery/v1` from `proto/`, or checks that what is committed is what would be generated.

The output is committed because whoever installs with pip has no protoc.

    .venv/bin/python scripts/proto.py            # write
    .venv/bin/python scripts/proto.py --check    # compare; exit 1 on drift
"""

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
PACKAGE = Path("rookery/v1")

GENERATED = "*_pb2*.py*"


def generate(out: Path) -> None:
    """Writes messages and stubs of every file, service stubs of those that declare a service."""
    sources = sorted(PROTO.glob(f"{PACKAGE}/*.proto"))
    with_service = [source for source in sources if "\nservice " in source.read_text()]
    run_protoc([f"--python_out={out}", f"--pyi_out={out}"], sources)
    run_protoc([f"--grpc_python_out={out}"], with_service)


def run_protoc(flags: list[str], sources: list[Path]) -> None:
    """Raises `SystemExit` after protoc has said on stderr what is wrong with a file."""
    includes = [f"-I{PROTO}", f"-I{files('grpc_tools') / '_proto'}"]
    status = protoc.main(["protoc", *includes, *flags, *map(str, sources)])
    if status:
        raise SystemExit(status)


def contents(folder: Path) -> dict[str, str]:
    """Generated files of a folder by name."""
    return {path.name: path.read_text() for path in folder.glob(GENERATED)}


def main(argv: list[str]) -> int:
    """Writes or compares."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh, committed = contents(Path(scratch) / PACKAGE), contents(ROOT / PACKAGE)
    drifted = sorted(
        name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name)
    )
    if argv == ["--check"]:
        for name in drifted:
            sys.stderr.write(f"{PACKAGE / name} is not what proto/ generates: run `make proto`\n")
        return 1 if drifted else 0
    for name in drifted:
        path = ROOT / PACKAGE / name
        if name in fresh:
            path.write_text(fresh[name])
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

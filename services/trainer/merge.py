"""`rookery merge`: one version of a run as a model of its own, for transformers, vLLM and `rookery uci`.

The model directory needs neither the run nor the base model. Its manifest says what it was made from.
"""

import json
import logging
import math
import os
import shutil
from collections import Counter
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, Literal

from pydantic_settings import CliPositionalArg

from rookery import __version__
from rookery.errors import InvalidInput, SetupError
from rookery.files import read_object, sync
from rookery.hub import (
    CONFIG_FILE,
    DIGEST,
    MANIFEST_FILE,
    model_folder,
    prompt_style,
    read_manifest,
    weight_files,
    weights_digest,
)
from rookery.prompt import StyleName
from rookery.remote import FolderPath, PathOrUrl, run_version
from rookery.settings import Settings

logger = logging.getLogger(__name__)


class MergeSettings(Settings, env_prefix="MERGE_"):
    """Merge a version of a run into its base model, and write the result as a model directory."""

    run: CliPositionalArg[PathOrUrl]
    """The run, by name, folder or URL, and the version after an @: demo@80. Without one, the newest."""
    out: FolderPath
    """Directory to write."""
    base: PathOrUrl = ""
    """Where the base model is, if it is not where the run found it. Its weights must be the same."""
    style: StyleName | None = None
    """Prompt style for the manifest. Default: that of the run or, if it names none, of the base model."""
    save_dtype: Literal["base", "bfloat16", "float32"] = "base"
    """Data type of the weights; `base`: that of the base model's. bfloat16 rounds the version."""


def run(settings: MergeSettings) -> None:
    """Writes the model directory. It appears only when it is complete. Raises `InvalidInput` if the base
    model has other weights than the run's, or the run is of a reward model; `SetupError` if there is no such
    run, version or base model, or `out` exists or cannot be written."""
    import torch

    from services.trainer.model.policies import tokenizer_files
    from services.trainer.versions import commits
    from services.trainer.versions.files import save_model, sync_files

    out = settings.out.resolve()
    if out.exists():
        raise SetupError(f"--out {settings.out} exists: choose another folder")
    folder, number = run_version(settings.run)
    version, state = commits.committed(folder / "adapters", number)
    name, _, digest = state["fingerprint"]["model"].partition(f"@{DIGEST}")
    base = _base(str(settings.base), name=name, digest=digest, version=version)
    if (trained_on := state["fingerprint"].get("base", "")).startswith("int"):
        logger.warning("%s was trained on %s weights; it is merged into the full ones", version, trained_on)
    of_base = read_manifest(base)
    tuned = read_manifest(folder / "model")  # of `sft` and `dpo`; a run has none
    answers = {name: tuned.get(name) or of_base.get(name) for name in ("box", "answer_tokens")}
    manifest = {
        "style": settings.style or _style(folder) or prompt_style(base),
        **{name: value for name, value in answers.items() if value},
        "base": f"{Path(name).name if Path(name).is_absolute() else name}@{weights_digest(base)}",
        "run": folder.resolve().name,
        "version": state["number"],
        "version_sha256": state["sha256"],
        "trained": {key: value for key, value in state["fingerprint"].items() if key != "model"},
        "made_with": {"rookery": __version__, **{p: installed(p) for p in ("peft", "torch", "transformers")}},
    }
    logger.info("merging %s, version %d, into %s", settings.run, state["number"], base)
    model = _merged(base, version, dtype=settings.save_dtype)
    if model.dtype != torch.float32:
        logger.warning("the weights are rounded to %s; --save-dtype float32 keeps them", model.dtype)
    temporary = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.with_name(f".merge.{out.name}.{os.getpid()}")
        temporary.mkdir()
        save_model(model, temporary)
        for name, data in tokenizer_files(base).items():
            (temporary / name).write_bytes(data)
        (temporary / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n")
        sync_files(temporary)
        temporary.rename(out)
        sync(out.parent)
    except OSError as error:
        raise SetupError(f"--out {settings.out}: {error.strerror or error}") from error
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
    logger.info("wrote %s: version %d of %s", settings.out, state["number"], settings.run)


def _base(chosen: str, *, name: str, digest: str, version: Path) -> Path:
    """The base model's folder."""
    try:
        base = model_folder(chosen or name)
    except SetupError as error:
        source = f"--base {chosen}" if chosen else f"the base model of {version}"
        raise SetupError(f"{source}: {error}" + ("" if chosen else "; --base says where it is")) from error
    if not digest:  # of a release whose sft and dpo named only the path
        logger.warning("%s does not say which weights %s had", version, name)
    elif (actual := weights_digest(base)) != f"{DIGEST}{digest}":
        raise InvalidInput(f"{base} has the weights {actual}, but {version} was trained on {DIGEST}{digest}")
    return base


def _style(run: Path) -> str | None:
    """The prompt style that `rookery up` keeps beside a run, or of the model that `sft` or `dpo` wrote."""
    path = run / "settings.json"
    settings = read_object(path) if path.is_file() else {}
    style = "rookworld" if settings.get("task") == "rookworld" else settings.get("style")
    return style or prompt_style(run / "model")


def _merged(base: Path, version: Path, *, dtype: str) -> Any:
    """The model, merged in float32, then of type `dtype`."""
    import torch
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    is_whole = (version / CONFIG_FILE).is_file()  # a version that is served as a whole model
    if not is_whole and PeftConfig.from_pretrained(version).task_type != "CAUSAL_LM":
        raise InvalidInput(f"{version} is the adapter of a reward model, which is already merged beside it")
    model: Any = AutoModelForCausalLM.from_pretrained(
        version if is_whole else base, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
    )
    if not is_whole:
        model = PeftModel.from_pretrained(model, version).merge_and_unload()
    return model.to(_stored_dtype(base) if dtype == "base" else getattr(torch, dtype))


def _stored_dtype(folder: Path) -> Any:
    """The type of most of a model's weights, as stored; float32 if they are no numbers of 16 bits."""
    import torch
    from safetensors import safe_open

    sizes = Counter[str]()
    for path in weight_files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                stored = file.get_slice(name)
                sizes[stored.get_dtype()] += math.prod(stored.get_shape())
    return {"BF16": torch.bfloat16, "F16": torch.float16}.get(sizes.most_common(1)[0][0], torch.float32)

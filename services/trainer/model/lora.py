"""LoRA adapters on any causal LM, and their files in PEFT's format, which vLLM reads.

peft is imported inside functions, here and in the policies: it takes two seconds of CPU time, and neither a
reward model's server nor a policy whose weights are all trained needs it.
"""

import json
import logging
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rookery.errors import InvalidInput, SetupError, changed_settings
from rookery.hub import DIGEST, weights_digest
from rookery.remote import run_version
from services.trainer.model.base_model import experts_of
from services.trainer.versions import commits
from services.trainer.versions.files import Content, StoredTensor, TensorFile

logger = logging.getLogger(__name__)


def with_adapter(
    model: Any, *, rank: int, alpha: int, targets: str, trained_whole: tuple[str, ...] = ()
) -> Any:
    """Returns `model`, frozen, with a new adapter in float32. Modules in `trained_whole` are trained too.

    `targets` are module names separated by commas, or `all-linear`: every linear layer except the head.
    Experts that are one tensor a layer are no linear layers, and get none.

    Raises:
        SetupError: the model has no linear layer of that name, or it is the head or the embeddings; PEFT
            would give adapters to experts.
    """
    from peft import LoraConfig, get_peft_model

    from services.trainer.model.lora_linear import LoraLinear

    head = model.get_output_embeddings()
    linear = {
        name.split(".")[-1]
        for name, module in model.named_modules()
        if module is not head and _is_linear(module)
    } - set(trained_whole)
    # Not PEFT's `all-linear`, because it lists the layers of a small model one by one.
    names = linear if targets == "all-linear" else _checked_targets(model, targets.split(","), linear)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=names,
        modules_to_save=list(trained_whole) or None,
        lora_dropout=0.0,
        bias="none",
        task_type="SEQ_CLS" if trained_whole else "CAUSAL_LM",
    )
    if not getattr(model, "is_quantized", False):  # PEFT has other layers for quantised weights
        config._register_custom_module({torch.nn.Linear: LoraLinear})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fan_in_fan_out")  # PEFT corrects it for GPT-2's Conv1D
        warnings.filterwarnings("ignore", ".*_pattern keys did not match")  # of names that are refused below
        try:
            adapted = get_peft_model(model, config)
        except ValueError as error:
            raise SetupError(f"lora_targets={targets}: {error}") from error
    # PEFT takes the names of linear layers for those of experts if a model had them in an older transformers.
    if moved := names - set(adapted.peft_config["default"].target_modules):
        raise SetupError(
            f"lora_targets={targets}: PEFT would give the adapters of {', '.join(sorted(moved))} to the "
            f"experts of a {type(model).__name__}, which is not supported: use "
            f"lora_targets={','.join(sorted(linear - moved))}"
        )
    if experts := experts_of(model):
        names = {re.sub(r"\.\d+\.", ".N.", name) for name in experts}
        logger.warning(
            "--lora-targets %s: the experts of a %s get no adapter: %s, %d weights",
            targets, type(model).__name__, ", ".join(sorted(names)), sum(p.numel() for p in experts.values()),
        )  # fmt: skip
    return adapted


def _is_linear(module: Any) -> bool:
    # Conv1D is GPT-2's linear layer in transformers.
    return isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"


def _checked_targets(model: Any, targets: list[str], linear: set[str]) -> set[str]:
    """Returns `targets` as a set, or raises SetupError. PEFT itself ignores a name that matches nothing if
    another one matches. It also accepts the head and the embeddings, which no server supports."""
    embeddings = (model.get_input_embeddings(), model.get_output_embeddings())
    for target in targets:
        # PEFT's own rule: the whole name, or its last parts.
        matches = [module for name, module in model.named_modules() if f".{name}".endswith(f".{target}")]
        if not target or not matches:
            raise SetupError(
                f"lora_targets: no module {target!r} in a {type(model).__name__}, "
                f"which has {', '.join(sorted(linear))}"
            )
        if any(module in embeddings for module in matches):
            raise SetupError(
                f"lora_targets={target}: servers do not support adapters on the head or the embeddings"
            )
        if others := [module for module in matches if not _is_linear(module)]:
            raise SetupError(f"lora_targets={target}: a {type(others[0]).__name__} is not a linear layer")
    return set(targets)


def find_adapter(run: str, *, base: Path) -> Path:
    """The folder of a version of `run`, an adapter for the model in the folder `base`. Raises `SetupError` if
    there is no such run or version; `InvalidInput` if it is no adapter, or was trained on other weights."""
    folder, number = run_version(run)
    version, state = commits.committed(folder / "adapters", number)
    _, _, digest = state["fingerprint"]["model"].partition(f"@{DIGEST}")
    if (actual := weights_digest(base)) != f"{DIGEST}{digest}":
        raise InvalidInput(f"{base} has the weights {actual}, but {version} was trained on {DIGEST}{digest}")
    if not (version / "adapter_config.json").is_file():
        raise InvalidInput(f"{version} is a whole model, not an adapter: name it as the model")
    return version


def continue_adapter(model: Any, version: Path) -> None:
    """Gives the adapter of `model` the weights of `version`. Raises `InvalidInput` if that has another rank,
    alpha or other layers."""
    from peft import PeftConfig, load_peft_weights, set_peft_model_state_dict

    old, new = PeftConfig.from_pretrained(version), model.peft_config["default"]
    names = ("r", "lora_alpha", "target_modules")
    shape = [{name: getattr(config, name) for name in names} for config in (old, new)]
    if changes := changed_settings(*shape):
        raise InvalidInput(f"{version} is another kind of adapter: {changes}")
    set_peft_model_state_dict(model, load_peft_weights(str(version), device="cpu"))


def adapter_files(model: Any, *, base_model: str) -> Mapping[str, Content]:
    """Returns the adapter's files by name. The same weights give the same bytes."""
    from peft import get_peft_model_state_dict

    weights = {
        name: StoredTensor.of(tensor, dtype=torch.float32)
        for name, tensor in get_peft_model_state_dict(model).items()
    }
    config = model.peft_config["default"].to_dict()
    config["base_model_name_or_path"] = base_model
    config["inference_mode"] = True
    # PEFT keeps names in sets: modules, and an empty one for a mixture of experts.
    config |= {name: sorted(value) for name, value in config.items() if isinstance(value, set)}
    text = json.dumps(config, indent=2, sort_keys=True, default=str)
    return {"adapter_model.safetensors": TensorFile(weights), "adapter_config.json": text.encode()}

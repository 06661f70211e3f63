"""A base model: loading it, in its own precision, 8 or 4 bits, its output head, its number of positions.

In 8 bits (LLM.int8(), arXiv 2208.07339), each row of a linear layer's weight becomes integers with one scale.
In 4 bits (NF4 of QLoRA, arXiv 2305.14314), each 64 weights become entries of a table of 16, with one scale.
Head, embeddings, norms and the adapter do not change. bitsandbytes computes the products: in 8 bits, on a GPU
it multiplies integers, and inputs beyond 6 separately in 16 bits; else it first scales the weights back.

`Head` computes logits from hidden states as the model does: output embedding, then scale, then cap.

    z = cap * tanh(scale * W h / cap), or scale * W h without a cap

Granite divides by `logits_scaling`, Cohere multiplies by `logit_scale`, Falcon-H1 by `lm_head_multiplier`,
Gemma caps with `final_logit_softcapping`. A model that does anything else is rejected when it is loaded.
"""

import importlib.util
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rookery.errors import SetupError
from rookery.trace import TraceGroup

_TOLERANCE = 1e-5
"""Allowed difference relative to the largest logit, unless two units of the model's precision are more."""


@dataclass(frozen=True, slots=True)
class Head:
    """`linear` maps hidden states [n, D] to products [n, V]. A `cap` of 0 means no cap."""

    linear: Callable[[torch.Tensor], torch.Tensor]
    scale: float = 1.0
    cap: float = 0.0

    @classmethod
    def of(cls, model: Any) -> "Head":
        """Returns the head of a Hugging Face causal LM, with or without an adapter."""
        config = _text_config(model.config)

        def setting(name: str, default: float) -> float:
            value = getattr(config, name, None)
            return float(default if value is None else value)

        scale = setting("logit_scale", 1.0) * setting("lm_head_multiplier", 1.0)
        cap = setting("final_logit_softcapping", 0.0) or setting("logits_soft_cap", 0.0)
        return cls(model.get_output_embeddings(), scale / setting("logits_scaling", 1.0), cap)

    def __call__(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Returns logits, [N, V], in float32, or in float64 if the products are."""
        products_NV = self.linear(hidden_ND)
        return self.shaped(products_NV.to(torch.promote_types(products_NV.dtype, torch.float32)))

    def shaped(self, products_NV: torch.Tensor) -> torch.Tensor:
        """Returns the products, scaled and capped. It is the same tensor if the model does neither."""
        logits_NV = products_NV if self.scale == 1.0 else products_NV * self.scale
        return self.cap * torch.tanh(logits_NV / self.cap) if self.cap else logits_NV

    def slope(self, logits_NV: torch.Tensor) -> torch.Tensor | float:
        """Returns the derivative of `shaped` from its result z: scale * (1 - (z / cap)^2)."""
        return self.scale * (1.0 - (logits_NV / self.cap).square()) if self.cap else self.scale


def check_logits(model: Any) -> None:
    """Compares the logits of `Head` with the model's own on a few tokens. Raises `SetupError` if they
    differ."""
    weight = model.get_output_embeddings().weight
    ids_1T = torch.arange(1, 5, device=weight.device)[None] % len(weight)
    with torch.no_grad():
        theirs_1TV = model(input_ids=ids_1T, use_cache=False).logits.float()
        ours_1TV = Head.of(model)(model.base_model(input_ids=ids_1T, use_cache=False).last_hidden_state)
    largest = theirs_1TV.abs().max().item()
    difference = (ours_1TV - theirs_1TV).abs().max().item()
    allowed = max(_TOLERANCE, 2 * torch.finfo(weight.dtype).eps) * max(1.0, largest)
    if not difference <= allowed:  # NaN compares false
        raise SetupError(
            f"model type {model.config.model_type!r}: its logits differ by up to {difference:.4g} "
            f"from those computed here, of at most {largest:.4g}, so it cannot be trained"
        )


_STRETCHED = ("linear", "dynamic", "yarn")
"""Rotary scalings whose factor extends the model beyond the limit in its config."""


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Raises `SetupError`, which names the model, for what transformers raises while it loads files."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        if "custom code" in why:
            why = "it needs code of its own (auto_map), which is never run"
        raise SetupError(f"no model in {str(path)!r} (--model): {why}") from error


def check_text_only(model: Any, path: Path) -> None:
    """Checks that the model has no parts besides the one for text: they would get adapters too. Raises
    `SetupError` if it has."""
    if (text := model.config.get_text_config()) is not model.config:
        raise SetupError(
            f"{str(path)!r} (--model) is a {type(model).__name__}, which reads more than text, so it cannot "
            f"be trained: save its {text.model_type} as a model of its own"
        )


def load_causal_lm(path: Path, *, dtype: torch.dtype, **loading: Any) -> Any:
    """Loads the language model of a directory or a Hugging Face id. Passes `loading` to `from_pretrained`.
    Raises `SetupError` if there is no such model, it also reads images or sound, or its logits differ from
    those of `Head`."""
    with named_in_errors(path):
        model = AutoModelForCausalLM.from_pretrained(
            path,
            config=config_without_dropout(path),
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            **loading,
        )
    check_text_only(model, path)
    # In evaluation mode, bitsandbytes would pack 4-bit weights for a product on CPUs that has no gradient.
    check_logits(model.train())
    return model


def load_quantised(path: Path, *, bits: int, dtype: torch.dtype, device: torch.device) -> Any:
    """Loads the language model of a directory onto `device`, its linear layers with 8 or 4 `bits` a weight.
    Weights that are not quantised have `dtype`. Raises `SetupError` if bitsandbytes is not installed, or
    there is no model."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise SetupError(f"base_bits={bits} needs bitsandbytes: pip install 'rookery[bits8]'")
    from transformers import BitsAndBytesConfig

    # bitsandbytes would warn at every product that it casts the inputs to 16 bits.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    model = load_causal_lm(
        path,
        dtype=dtype,
        quantization_config=BitsAndBytesConfig(
            load_in_8bit=bits == 8,
            load_in_4bit=bits == 4,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=dtype,
        ),
        device_map={"": str(device)},
    )
    if device.type == "cpu":
        # The other weights point into the memory-mapped file; copying them lets all of it be freed.
        for weight in model.parameters():
            if weight.is_floating_point():
                weight.data = weight.data.clone()
    return model


def experts_of(model: Any) -> dict[str, torch.nn.Parameter]:
    """Returns the weights of the experts of a mixture by name: a tensor [experts, out, in] for those of a
    layer."""
    convolutions = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Conv1d)}
    return {name: p for name, p in model.named_parameters() if p.ndim == 3 and id(p) not in convolutions}


def config_without_dropout(path: Path) -> Any:
    """Returns the config of a model with dropout off, so that a loss depends on weights and tokens only."""
    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    for name, value in vars(config).items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


def max_positions(config: Any) -> int | None:
    """Returns the number of positions of the model with this config; None if it has no limit. Beyond it,
    GPT-2 has no embeddings, and other models are untrained."""
    config = _text_config(config)
    limit = getattr(config, "max_position_embeddings", None)  # also the name for GPT-2's `n_positions`
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if limit and rope.get("rope_type", rope.get("type")) in _STRETCHED:
        limit = max(limit, int(rope.get("factor", 1) * rope.get("original_max_position_embeddings", limit)))
    return limit


def _text_config(config: Any) -> Any:
    """Returns the part of a config that is for text; that of this project's GPT-2 has no other."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def check_length(model: Any, tokens: int, *, name: str) -> None:
    """Checks that a sequence of `tokens` tokens fits the model. `name` describes it in the message. Raises
    `SetupError` if the model has fewer positions."""
    limit = max_positions(model.config)
    if limit is not None and tokens > limit:
        raise SetupError(f"{name}: {tokens:,} tokens, but the model has {limit:,} positions")


def check_group_length(model: Any, group: TraceGroup) -> None:
    """Checks that the sequences of a group fit the model. Raises `SetupError` if the prompt with the longest
    completion, and the turns before it, has more tokens than the model has positions."""
    before, prompt, longest = 0, 0, 0
    for turn in group.turns:
        before = before + len(turn.prompt_token_ids) if turn.continues else len(group.prompt_tokens_of(turn))
        tokens = len(turn.completion.token_ids)
        if before + tokens > prompt + longest:
            prompt, longest = before, tokens
        before += tokens
    name = f"group {group.id}, a prompt of {prompt:,} and a completion of {longest:,} tokens"
    check_length(model, prompt + longest, name=name)

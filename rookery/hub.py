"""Finds the files of a model: a directory, a snapshot of a Hugging Face id, or a copy of those at a URL.

The Hub's cache is read directly. `huggingface_hub` is needed only to download.
"""

import hashlib
import json
import os
import re
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from rookery.errors import InvalidInput, SetupError
from rookery.files import expanded, object_or_empty, read_object
from rookery.remote import is_url, local_folder, shipped

CONFIG_FILE = "config.json"
MANIFEST_FILE = "data_manifest.json"
"""What a model was trained on, beside its weights. Only some models have it."""
WEIGHTS_FILE = "model.safetensors"
_INDEX_FILE = "model.safetensors.index.json"

_TEXT_FILES = ("*.json", "*.txt", "*.jinja", "*.model")
_FILES = (*_TEXT_FILES, "*.safetensors")
_IGNORED_FILES = ("*/*", "consolidated*")
"""Copies of the same weights in formats of other programs."""

DIGEST = "sha256:"
_BLOCK = 1 << 14
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_METADATA = "__metadata__"


def model_folder(model: str) -> Path:
    """The directory of `model`: the path itself, the snapshot of that id, or the copy of what is at that URL.
    The latter two are downloaded if needed. Raises `SetupError` if it is neither a model directory nor an id
    or a URL that can be downloaded; `Unavailable` if the store of a URL does not answer."""
    return local_model(model) or cached(model) or _download(model)


def local_model(model: str) -> Path | None:
    """The directory of `model`: the path itself, or the copy of what is at that URL; None for an id of the
    Hugging Face Hub, in the cache or not. Raises as `model_folder` does, unless a download fails."""
    folder = local_folder(model)
    if (folder / CONFIG_FILE).is_file():
        return folder
    if not _is_id(model):
        raise SetupError(
            f"no model in {model!r} (--model): it has no {CONFIG_FILE}, and is no Hugging Face id such as "
            "Qwen/Qwen3-4B"
        )
    return None


def cached(model: str) -> Path | None:
    """The cached snapshot of the id's main revision; None if its configuration or a weight is missing."""
    snapshot = _snapshot(model)
    if snapshot is None:
        return None
    files = [snapshot / CONFIG_FILE, *weight_files(snapshot)]
    return snapshot if all(path.is_file() for path in files) else None


def _snapshot(model: str) -> Path | None:
    """The folder of the id's main revision in the cache, whatever is in it."""
    repository = cache_dir() / f"models--{model.replace('/', '--')}"
    try:
        revision = (repository / "refs" / "main").read_text().strip()
    except OSError:
        return None
    return repository / "snapshots" / revision


def is_gpt2(folder: Path) -> bool:
    """Whether the config of a directory says that its model is a GPT-2. False if there is no valid config."""
    return bool(object_or_empty(folder / CONFIG_FILE).get("model_type") == "gpt2")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the model in a folder; empty if it has none.

    Of the answers that the model was trained on, `style` is that of the prompts, `box` the notation of the
    move in the box, `san` or `uci`, and `answer_tokens` a length that 99% of them do not exceed. Raises
    `SetupError` if the manifest is damaged.
    """
    path = folder / MANIFEST_FILE
    return read_object(path) if path.is_file() else {}


def prompt_style(folder: Path) -> str | None:
    """The style of the prompts that the model was trained on, if its manifest names one. Raises `SetupError`
    if the manifest is damaged."""
    return read_manifest(folder).get("style")


def chat_template(folder: Path) -> str:
    """The chat template beside a model's tokenizer; empty if it has none."""
    for name in ("chat_template.jinja", "chat_template.json", "tokenizer_config.json"):
        try:
            text = (folder / name).read_text()
            template = text if name.endswith(".jinja") else json.loads(text)["chat_template"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if template:
            return str(template)
    return ""


PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""Chat template for models without one, such as GPT-2: joins the messages' texts, as `rookery sft` does."""

_FOLD_SYSTEM = (
    "{%- if messages | length > 1 and messages[0].role == 'system' -%}"
    "{%- set messages = [{'role': messages[1].role, "
    "'content': messages[0].content + '\\n\\n' + messages[1].content}] + messages[2:] -%}{%- endif -%}"
)


BOS = "{{ bos_token }}"


def begins_with_bos(folder: Path) -> bool:
    """Whether the tokenizer in a folder puts a BOS token before every text, as those of Llama and Gemma do.
    Chat templates write that token themselves."""
    for name in ("tokenizer_config.json", "tokenizer.json"):
        try:
            values = json.loads((folder / name).read_text())
            if "add_bos_token" in values:
                return bool(values["add_bos_token"])
            processor = values["post_processor"]
            steps = processor.get("processors", [processor])
            return any("SpecialToken" in step["single"][0] for step in steps if "single" in step)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return False


def with_system_role(template: str) -> str:
    """A chat template, so changed that it shows system messages, which Gemma 2's refuses, as Mistral's does.

    They are put before the user's first message, as in Gemma 3's template and mistral-common. A template that
    shows them, or that cannot be tried here, is returned as it is.
    """
    if _shows_system(template):
        return template
    folding = _FOLD_SYSTEM + template
    return folding if _shows_system(folding) else template


def _shows_system(template: str) -> bool:
    mark = "the system's message"
    messages = [{"role": "system", "content": mark}, {"role": "user", "content": "a question"}]
    try:
        return mark in render_chat(template, messages)
    except InvalidInput:
        return False
    except TEMPLATE_ERRORS:  # it needs more than this
        return True


TEMPLATE_ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What `render_chat` raises for a template that fails."""


def render_chat(
    template: str, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """What a chat template makes of messages and the schemas of tools, with the beginning of an answer and
    without the tokens that begin and end a text. Raises `InvalidInput` if it refuses them or Jinja cannot
    parse it; one of `TEMPLATE_ERRORS` if it fails; `ImportError` without jinja2."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    # As in transformers: Jinja's own escapes what HTML reserves.
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, **{"ensure_ascii": False, **options}
    )
    environment.globals |= {"raise_exception": refuse, "strftime_now": time.strftime}
    try:
        return environment.from_string(template).render(
            messages=messages, tools=tools, add_generation_prompt=True, bos_token="", eos_token=""
        )
    except TemplateError as error:
        raise InvalidInput(f"chat template: {error}") from error


def text_folder(model: str, *, download: bool = True) -> Path:
    """A directory with a model's configuration, tokenizer and template, perhaps without its weights.

    An id of the Hugging Face Hub that is not in the cache is downloaded unless `download` is false. Raises
    `SetupError` if it is neither a model directory nor an id or a URL that can be downloaded; `Unavailable`
    if the store of a URL does not answer.
    """
    if not _is_id(model):
        return model_folder(model)
    snapshot = _snapshot(model)
    if snapshot and (snapshot / CONFIG_FILE).is_file():
        return snapshot
    if not download:
        raise SetupError(f"{model!r} is not in {cache_dir()}")
    return _download(model, _TEXT_FILES)


def identity(model: str) -> str:
    """The model's name and digest, `models/rook-tiny@sha256:...`; only the name if `weights_digest` is None.
    Raises `SetupError` if it is an id that cannot be downloaded, or its weights are damaged."""
    digest = weights_digest(model_folder(model) if _is_id(model) or is_url(model) else local_folder(model))
    return f"{model}@{digest}" if digest else model


def check_allowed(model: str, allowed: str) -> None:
    """Checks a base model against a list of names and digests (`sha256:...`), separated by commas. Raises
    `SetupError` if there is a list, and it has neither the name nor the digest of the weights."""
    names = {expanded(name.strip()) for name in allowed.split(",")} - {""}
    if not names or model in names:
        return
    digest = weights_digest(model_folder(model))
    if digest not in names:
        raise SetupError(f"allowed_models has neither {model!r} nor its {digest}, but {allowed!r}")


def weights_digest(folder: Path) -> str | None:
    """A digest of a model's weights, whatever the model is called; None without safetensors files.

    The SHA-256 over the name, type and shape of every tensor and three blocks of 16 KiB of its bytes: the
    first, the middle and the last. It is cheap at any size, and does not depend on how tensors are spread
    over files. Three blocks are enough, because training changes all of a tensor. Raises `SetupError` if a
    file is damaged.
    """
    paths = weight_files(folder)
    if not all(path.is_file() for path in paths):
        return None
    try:
        tensors = dict(tensor for path in paths for tensor in _tensor_digests(path))
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise SetupError(f"weights of {folder}: {error!r}") from error
    return DIGEST + hashlib.sha256(repr(sorted(tensors.items())).encode()).hexdigest()


def tensor_names(folder: Path) -> set[str]:
    """The names of a model's tensors; empty without safetensors files. Raises `SetupError` if a file is
    damaged."""
    paths = [path for path in weight_files(folder) if path.is_file()]
    try:
        return {name for path in paths for name in _read_header(path)[1]} - {_METADATA}
    except (OSError, ValueError, TypeError, struct.error) as error:
        raise SetupError(f"weights of {folder}: {error!r}") from error


def text_digest(folder: Path) -> str:
    """A digest of all files but the weights: the configuration, the tokenizer, the chat template."""
    paths = sorted(path for pattern in _TEXT_FILES for path in folder.glob(pattern))
    files = [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths]
    return hashlib.sha256(repr(files).encode()).hexdigest()


def weight_files(folder: Path) -> list[Path]:
    """The files of a model's weights, whether they exist or not: a single file or else those of its index.

    transformers chooses them in the same way. Raises `SetupError` if the index is damaged, or names a file
    that is not in the same folder.
    """
    index, whole = folder / _INDEX_FILE, folder / WEIGHTS_FILE
    if whole.is_file() or not index.is_file():
        return [whole]
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise SetupError(f"{index}: {error!r}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise SetupError(f"{index} names {name!r}, which is not a file in the same folder")
    return [folder / name for name in names]


def _tensor_digests(path: Path) -> Iterator[tuple[str, str]]:
    """The name of each tensor in a safetensors file, with its type, its shape and a digest of its blocks."""
    size, header = _read_header(path)
    with path.open("rb") as file:
        for name, tensor in header.items():
            if name == _METADATA:
                continue
            start, end = (8 + size + offset for offset in tensor["data_offsets"])
            yield name, f"{tensor['dtype']} {tensor['shape']} {_blocks_digest(file, start, end)}"


def _read_header(path: Path) -> tuple[int, dict[str, Any]]:
    """The size of the header of a safetensors file, and its entries by the name of the tensor."""
    with path.open("rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        if size > path.stat().st_size:
            raise ValueError(f"{path.name} is cut short, or no safetensors file (a pointer of Git LFS?)")
        header: dict[str, Any] = dict(json.loads(file.read(size)))
    return size, header


def _blocks_digest(file: BinaryIO, start: int, end: int) -> str:
    digest = hashlib.sha256()
    for place in sorted({start, max(start, (start + end - _BLOCK) // 2), max(start, end - _BLOCK)}):
        file.seek(place)
        digest.update(file.read(min(_BLOCK, end - place)))
    return digest.hexdigest()


def _download(model: str, files: Iterable[str] = _FILES) -> Path:
    try:
        from huggingface_hub import snapshot_download

        return Path(
            snapshot_download(model, allow_patterns=list(files), ignore_patterns=list(_IGNORED_FILES))
        )
    except Exception as error:
        if not is_hub_fault(error):
            raise
        why = (str(error).strip() or repr(error)).splitlines()[0]
        raise SetupError(
            f"no model {model!r} (--model): it is not a directory, it is not in {cache_dir()}, and Hugging "
            f"Face did not provide it ({why}); on a machine with a network, run: hf download {model}"
        ) from error


def is_hub_fault(error: Exception) -> bool:
    """Whether huggingface_hub raises such an error if the Hub refuses or cannot be reached, or Python if the
    package is missing. Errors of its HTTP library, which differs between versions, come through."""
    known = isinstance(error, ImportError | OSError | RuntimeError | ValueError)
    return known or type(error).__module__.partition(".")[0] in ("huggingface_hub", "httpx", "httpx2")


def cache_dir() -> Path:
    """The cache directory of huggingface_hub, from its environment variables in their order of precedence."""
    if path := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(path).expanduser()
    general = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{general}/huggingface"
    return Path(home).expanduser() / "hub"


def _is_id(model: str) -> bool:
    """Whether `model` looks like an `owner/name` id and not like a path."""
    path = shipped(model)
    return bool(_ID.fullmatch(model)) and not (path.exists() or path.parent.is_dir())

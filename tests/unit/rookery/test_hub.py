"""Models of the Hub's cache: what counts as being here."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from rookery.errors import SetupError
from rookery.hub import (
    begins_with_bos,
    cache_dir,
    cached,
    check_allowed,
    identity,
    model_folder,
    tensor_names,
    weight_files,
    weights_digest,
    with_system_role,
)
from tests.chat_models import MISTRAL_TEMPLATE
from tests.conftest import ROOT
from tests.hub import write_snapshot


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


def test_a_snapshot_is_found_by_its_id(cache: Path) -> None:
    assert cached("some/model") is None
    snapshot = write_snapshot(cache, "some/model", {})
    assert cached("some/model") == model_folder("some/model") == snapshot


def test_what_is_still_being_fetched_is_not_here(cache: Path) -> None:
    snapshot = write_snapshot(cache, "some/model", {})
    (snapshot / "model.safetensors").unlink()
    assert cached("some/model") is None
    shards = {"a.weight": "model-1.safetensors", "b.weight": "model-2.safetensors"}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (snapshot / "model-1.safetensors").touch()
    assert cached("some/model") is None
    (snapshot / "model-2.safetensors").touch()
    assert cached("some/model") == snapshot
    (snapshot / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(SetupError, match=r"index\.json"):
        cached("some/model")


def test_a_directory_comes_before_the_cache(cache: Path, tmp_path: Path) -> None:
    write_snapshot(cache, "some/model", {})
    own = tmp_path / "some" / "model"
    own.mkdir(parents=True)
    (own / "config.json").touch()
    assert model_folder("some/model") == Path("some/model")


def test_what_is_not_here_says_how_to_fetch_it(cache: Path) -> None:
    with pytest.raises(
        SetupError,
        match=f"no model 'some/model' .*not in {cache}, .*huggingface_hub.*: hf download some/model",
    ):
        model_folder("some/model")


@pytest.mark.parametrize("model", ["models/none", "/some/model", "none", "a/b/c"])
def test_a_path_that_leads_nowhere_is_no_id(model: str, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with pytest.raises(SetupError, match=f"no model in '{model}'"):
        model_folder(model)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({}, "~/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HF_HOME": "/home", "XDG_CACHE_HOME": "/x"}, "/home/hub"),
        ({"HF_HUB_CACHE": "/hub", "HF_HOME": "/home"}, "/hub"),
        ({"HUGGINGFACE_HUB_CACHE": "~/old"}, "~/old"),
    ],
)
def test_the_cache_is_where_huggingface_hub_has_it(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_dir() == Path(folder).expanduser()


def test_what_is_not_here_is_fetched(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = types.ModuleType("huggingface_hub")
    hub.snapshot_download = lambda model, **how: str(write_snapshot(cache, model, {}))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert model_folder("some/model") == cached("some/model")


def test_a_download_that_is_cut_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(model: str, **how: object) -> str:
        raise errors.pop()

    hub = types.ModuleType("huggingface_hub")
    hub.snapshot_download = cut  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    # Which is no OSError, unlike those of requests.
    cut_off = type("RemoteProtocolError", (Exception,), {"__module__": "httpx2"})
    errors: list[Exception] = [AttributeError("a mistake"), cut_off()]
    with pytest.raises(SetupError, match=r"did not provide it \(RemoteProtocolError\(\)\)"):
        model_folder("some/model")
    with pytest.raises(AttributeError, match="a mistake"):
        model_folder("some/model")


@pytest.mark.parametrize("content", [b"version https://git-lfs.github.com/spec/v1\n", b"\xff" * 9])
def test_what_is_no_whole_file_of_weights_is_not_read(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    for read in (weights_digest, tensor_names):
        with pytest.raises(SetupError, match=r"model\.safetensors is cut short.*Git LFS"):
            read(tmp_path)


def _write(folder: Path, files: dict[str, dict[str, list[float]]]) -> Path:
    """A model of those tensors in those files."""
    folder.mkdir()
    for name, tensors in files.items():
        arrays = {tensor: np.array(values, dtype=np.float32) for tensor, values in tensors.items()}
        save_file(arrays, folder / name, metadata={"format": name})
    if "model.safetensors" not in files:
        shards = {tensor: name for name, tensors in files.items() for tensor in tensors}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    return folder


def test_the_same_weights_in_other_files_are_the_same_model(tmp_path: Path) -> None:
    long = [float(i) for i in range(50_000)]
    whole = _write(tmp_path / "a", {"model.safetensors": {"x": [1.0, 2.0], "y": long}})
    parts = {"model-1.safetensors": {"y": long}, "model-2.safetensors": {"x": [1.0, 2.0]}}
    split = _write(tmp_path / "b", parts)
    digest = weights_digest(whole)

    assert digest == weights_digest(split)
    assert identity(str(whole)) == f"{whole}@{digest}"


def test_one_file_comes_before_those_of_an_index(tmp_path: Path) -> None:
    model = _write(tmp_path / "a", {"model-1.safetensors": {"x": [1.0]}, "model-2.safetensors": {"y": [2.0]}})
    save_file({"x": np.zeros(1, dtype=np.float32)}, model / "model.safetensors")
    alone = _write(tmp_path / "b", {"model.safetensors": {"x": [0.0]}})
    assert weight_files(model) == [model / "model.safetensors"]  # as transformers loads it
    assert weights_digest(model) == weights_digest(alone)


def test_an_index_may_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../etc/passwd"}}')
    with pytest.raises(SetupError, match="not a file in the same folder"):
        weight_files(tmp_path)


@pytest.mark.parametrize("place", [0, 25_000, 49_999])
def test_other_weights_are_another_model(tmp_path: Path, place: int) -> None:
    before = [float(i) for i in range(50_000)]
    after = [*before[:place], -1.0, *before[place + 1 :]]
    one, other, renamed = (
        _write(tmp_path / name, {"model.safetensors": tensors})
        for name, tensors in (("a", {"y": before}), ("b", {"y": after}), ("c", {"z": before}))
    )
    assert len({weights_digest(one), weights_digest(other), weights_digest(renamed)}) == 3


def test_weights_of_another_kind_are_known_by_name_and_damaged_ones_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    assert identity(str(tmp_path)) == str(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(SetupError, match=r"weights of .*: error"):
        identity(str(tmp_path))


def test_a_list_of_base_models_allows_names_and_weights() -> None:
    model = str(ROOT / "models" / "rook-tiny")
    digest = weights_digest(Path(model))
    for allowed in ("", model, f"other, {model}", f"{digest}", f"other,{digest}"):
        check_allowed(model, allowed)
    with pytest.raises(SetupError, match=f"has neither '{model}' nor its {digest}, but 'other'"):
        check_allowed(model, "other")


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        (MISTRAL_TEMPLATE, "<s>[INST] S\n\nU[/INST]"),
        ("{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}", "[S\n\nU]"),
        ("{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}", "[system: S][user: U]"),
        ("{% generation %}{% endgeneration %}", None),
        ("{{ raise_exception('nobody may ask') }}", None),
        ("{{ messages[7].content.nothing }}", None),
    ],
    ids=["refuses it", "drops it", "shows it", "another language", "refuses all", "fails"],
)
def test_a_system_message_is_shown_whatever_the_template(template: str, shown: str | None) -> None:
    pytest.importorskip("jinja2")
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    changed = with_system_role(template)
    assert (changed == template) == (shown is None or "system" in shown)
    if shown:
        messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
        environment = ImmutableSandboxedEnvironment()
        assert environment.from_string(changed).render(messages=messages, bos_token="<s>") == shown
        alone = environment.from_string(changed).render(messages=messages[1:], bos_token="<s>")
        assert alone == environment.from_string(template).render(messages=messages[1:], bos_token="<s>")


def test_a_bos_comes_first_if_the_tokenizers_files_say_so(tmp_path: Path) -> None:
    assert not begins_with_bos(tmp_path)
    first: list[dict[str, Any]] = [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]
    for single, begins in ((first, True), (first[1:], False)):
        steps = [{"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": single}]
        for processor in (steps[1], {"type": "Sequence", "processors": steps}):
            (tmp_path / "tokenizer.json").write_text(json.dumps({"post_processor": processor}))
            assert begins_with_bos(tmp_path) is begins
    (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": true}')
    assert begins_with_bos(tmp_path)

"""Our GPT-2 beside transformers' on random weights: logits to 1e-4, padded or not, cached or not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rookery.errors import InvalidInput
from services.trainer.gpt2 import loader
from services.trainer.gpt2.model import Cache, Gpt2, Gpt2Config, positions
from tests.unit.trainer.contents import contents
from tests.unit.trainer.gpt2_models import write_gpt2

SHAPES: dict[str, dict[str, Any]] = {
    "small": {},
    "wide-mlp": {"n_embd": 48, "n_head": 3, "n_inner": 100, "n_layer": 3},
    "one-head": {"n_head": 1, "n_layer": 1, "vocab_size": 50},
    "untied": {"tie_word_embeddings": False},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("gpt2")
    return {name: write_gpt2(root / name, **shape) for name, shape in SHAPES.items()}


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(folders["small"], tmp_path / "model")
    return tmp_path / "model"


def theirs(folder: Path, *, dtype: "torch.dtype" = torch.float32) -> Any:
    from transformers import GPT2LMHeadModel

    return GPT2LMHeadModel.from_pretrained(folder, dtype=dtype).eval()


def tokens(model: Gpt2, *, rows: int = 3, length: int = 20) -> "torch.Tensor":
    generator = torch.Generator().manual_seed(1)
    return torch.randint(model.config.vocab_size, (rows, length), generator=generator)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_transformers(folders: dict[str, Path], shape: str) -> None:
    model = loader.load(folders[shape])
    ids = tokens(model)
    with torch.no_grad():
        expected = theirs(folders[shape])(ids).logits
        assert (model(ids) - expected).abs().max() < 1e-4
    assert expected.std() > 0.5, "weights that small would hide anything"


@pytest.mark.parametrize("shape", SHAPES)
def test_left_padding_changes_nothing(folders: dict[str, Path], shape: str) -> None:
    model, other = loader.load(folders[shape]), theirs(folders[shape])
    ids, present = tokens(model), torch.ones(3, 20, dtype=torch.long)
    for row, padding in enumerate((0, 5, 17)):
        present[row, :padding] = 0
    with torch.no_grad():
        padded = model(ids, attention_mask_BT=present)
        expected = other(ids, attention_mask=present, position_ids=positions(present)).logits
        for row, padding in enumerate((0, 5, 17)):
            alone = model(ids[row : row + 1, padding:])[0]
            assert (padded[row, padding:] - alone).abs().max() < 1e-5
            assert (padded[row, padding:] - expected[row, padding:]).abs().max() < 1e-4
    assert padded.isfinite().all(), "the padding itself must not become NaN"


@pytest.mark.parametrize("shape", SHAPES)
def test_the_cache_changes_nothing(folders: dict[str, Path], shape: str) -> None:
    model = loader.load(folders[shape])
    ids = tokens(model)
    cache = Cache.empty(model.config, rows=3, capacity=20, dtype=torch.float32, device=torch.device("cpu"))
    with torch.no_grad():
        parts = [model.lm_head(model.hidden(ids[:, :7], cache=cache))]
        parts += [model.lm_head(model.hidden(ids[:, i : i + 1], cache=cache)) for i in range(7, 20)]
        whole = model(ids)
    assert cache.length == 20
    assert (torch.cat(parts, dim=1) - whole).abs().max() < 1e-5


def test_bfloat16_is_within_its_rounding(folders: dict[str, Path]) -> None:
    """Eight bits of mantissa and two layers: a hundredth of the largest logit, as transformers' own."""
    exact = loader.load(folders["small"])
    rounded = loader.load(folders["small"]).to(torch.bfloat16)
    ids = tokens(exact)
    with torch.no_grad():
        logits = exact(ids)
        ours = (rounded(ids).float() - logits).abs().max()
        other = (theirs(folders["small"], dtype=torch.bfloat16)(ids).logits.float() - logits).abs().max()
    assert ours < 0.02 * logits.abs().max()
    assert ours < 2 * other


def test_several_tokens_after_cached_ones_need_a_mask(folders: dict[str, Path]) -> None:
    model = loader.load(folders["small"])
    cache = Cache.empty(model.config, rows=3, capacity=20, dtype=torch.float32, device=torch.device("cpu"))
    ids = tokens(model)
    model.hidden(ids[:, :7], cache=cache)
    with pytest.raises(ValueError, match="13 tokens after 7"):
        model.hidden(ids[:, 7:], cache=cache)


def test_gradient_checkpointing_keeps_the_gradient(folders: dict[str, Path]) -> None:
    def gradient(*, checkpointing: bool) -> "torch.Tensor":
        model = loader.load(folders["small"])
        model.gradient_checkpointing = checkpointing
        model(tokens(model)).square().mean().backward()
        return torch.cat([weight.grad.flatten() for weight in model.parameters()])

    assert torch.allclose(gradient(checkpointing=True), gradient(checkpointing=False), atol=1e-6)


def test_rookworld_has_the_shape_of_gpt2_small() -> None:
    with torch.device("meta"):
        model = Gpt2(Gpt2Config())
    assert sum(weight.numel() for weight in model.parameters()) == 124_439_808


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_saved_transformers_loads_back(folders: dict[str, Path], tmp_path: Path, shape: str) -> None:
    model = loader.load(folders[shape])
    config = json.loads((folders[shape] / "config.json").read_text())
    files = contents(loader.files(model, config=config))
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with torch.no_grad():
        assert (theirs(tmp_path)(tokens(model)).logits - model(tokens(model))).abs().max() < 1e-4
    before, after = (load_file(path / "model.safetensors") for path in (folders[shape], tmp_path))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert contents(loader.files(loader.load(tmp_path), config=config)) == files


def edit(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(change(weights), folder / "model.safetensors")


def test_names_may_come_without_their_prefix_and_with_masks_of_old(folder: Path) -> None:
    expected = loader.load(folder)
    mask = torch.ones(1, 1, 64, 64).tril()
    edit(
        folder, lambda w: {**{n.removeprefix("transformer."): t for n, t in w.items()}, "h.0.attn.bias": mask}
    )
    assert torch.equal(loader.load(folder)(tokens(expected)), expected(tokens(expected)))


def test_weights_may_come_in_several_files(folder: Path) -> None:
    expected = loader.load(folder)
    theirs(folder).save_pretrained(folder, max_shard_size="20KB")
    assert not (folder / "model.safetensors").exists() or (folder / "model.safetensors").unlink() is None
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    assert torch.equal(loader.load(folder)(tokens(expected)), expected(tokens(expected)))


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "missing": (
        lambda w: {n: t for n, t in w.items() if n != "transformer.h.1.ln_2.bias"},
        r"missing h\.1\.ln_2\.bias",
    ),
    "unknown": (lambda w: {**w, "transformer.h.7.ln_1.bias": torch.ones(32)}, r"unknown h\.7\.ln_1\.bias"),
    "misshapen": (
        lambda w: {**w, "transformer.h.0.mlp.c_fc.weight": torch.ones(128, 32)},
        r"misshapen h\.0\.mlp\.c_fc\.weight has \[128, 32\], wanted \[32, 128\]",
    ),
}


@pytest.mark.parametrize("damage", REFUSED)
def test_wrong_tensors_are_refused_by_name(folder: Path, damage: str) -> None:
    change, message = REFUSED[damage]
    edit(folder, change)
    with pytest.raises(InvalidInput, match=message):
        loader.load(folder)


def test_what_is_no_such_model_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"config\.json"):
        loader.load(tmp_path / "nowhere")
    for old, new, message in (
        ('"model_type": "gpt2"', '"model_type": "llama"', "'llama' is not 'gpt2'"),
        ("gelu_new", "relu", "activation_function 'relu'"),
        ('"n_head": 4', '"n_head": 5', "5 heads do not divide the width 32"),
        ('"n_embd"', '"n_width"', "lacks 'n_embd'"),
    ):
        text = (folder / "config.json").read_text()
        assert old in text
        (folder / "config.json").write_text(text.replace(old, new))
        with pytest.raises(InvalidInput, match=message):
            loader.load(folder)
        (folder / "config.json").write_text(text)
    (folder / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(InvalidInput, match=r"model\.safetensors"):
        loader.load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InvalidInput, match=r"model\.safetensors: No such file"):
        loader.load(folder)

"""Supervised fine-tuning: which tokens carry loss, in which order examples come, and resuming."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rookery.config.finetune import SftSettings
from rookery.errors import InvalidInput, SetupError
from rookery.hub import MANIFEST_FILE, weights_digest
from services.trainer import merge
from services.trainer.examples.chat_files import ChatExamples, open_chats
from services.trainer.examples.rows import (
    SoftTargets,
    TokenizedExample,
    collate_examples,
    pack_rows,
    shuffled_batches,
)
from services.trainer.finetune import loop, sft
from services.trainer.finetune.output import style_of
from services.trainer.merge import MergeSettings
from services.trainer.records import profile
from tests.unit.trainer.other_models import write_mixture

BOARD = "RNBQKBNRPPPPPPPP................................pppppppprnbqkbnr KQkq -"


def _line(answer: str) -> str:
    messages = [{"role": "user", "content": BOARD}, {"role": "assistant", "content": answer}]
    return json.dumps({"messages": messages})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    moves = ["e2e4", "d2d4", "g1f3", "c2c4", "b1c3", "f2f4", "a2a3", "h2h4"]
    path = tmp_path / "moves.jsonl"
    path.write_text("\n".join(_line(f"<think>{m}</think>\\boxed{{{m}}}") for m in moves * 2) + "\n")
    return path


def _settings(model: Path, data: Path, out: Path, **changes: object) -> SftSettings:
    values = {
        "batch_size": 4,
        "steps": 6,
        "lr": 1e-3,
        "warmup_steps": 1,
        "save_every": 3,
        "precision": "fp32",
    }
    values |= {"threads": 1, "save_dtype": "float32"}
    return SftSettings(model=model, data=data, out=out, **(values | changes))  # type: ignore[arg-type]


def _rows(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_the_loss_is_the_cross_entropy_of_the_full_logits(tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    examples = [TokenizedExample([5], ([6, 7],)), TokenizedExample([9, 6], ([17, 8, 9],))]
    task = sft.SftTask(model, _settings(tiny_model, tiny_model, tiny_model))
    loss = task.sums(collate_examples(pack_rows(examples)))["loss"] / task.weight(examples)
    ids = torch.tensor([[5, 6, 7, 0, 0], [9, 6, 17, 8, 9]])
    labels = torch.tensor([[-100, 6, 7, -100, -100], [-100, -100, 17, 8, 9]])
    assert loss.item() == pytest.approx(model(input_ids=ids, labels=labels).loss.item(), rel=1e-5)


def test_a_soft_target_costs_its_cross_entropy(tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    distribution = SoftTargets.of([17, 8], {1: {8: 0.5, 7: 0.25, 20: 0.25}})
    soft = TokenizedExample([9, 6], ([17, 8],), soft_targets=(distribution,))
    examples = [TokenizedExample([5], ([6, 7, 8],)), soft]
    task = sft.SftTask(model, _settings(tiny_model, tiny_model, tiny_model))
    loss = task.sums(collate_examples(pack_rows(examples)))["loss"]
    logs = model(input_ids=torch.tensor([[5, 6, 7, 8], [9, 6, 17, 8]])).logits.log_softmax(-1)
    hard = logs[0, 0, 6] + logs[0, 1, 7] + logs[0, 2, 8] + logs[1, 1, 17]
    expected = hard + logs[1, 2, 8] / 2 + logs[1, 2, 7] / 4 + logs[1, 2, 20] / 4
    assert loss.item() == pytest.approx(-expected.item(), rel=1e-5)
    assert task.weight(examples) == 5

    both = _settings(tiny_model, tiny_model, tiny_model, alternatives_coefficient=3.0)
    sums = sft.SftTask(model, both).sums(collate_examples(pack_rows(examples)))
    any_of_them = hard + logs[1, 2, [8, 7, 20]].logsumexp(0)
    assert sums["cross_entropy"].item() == pytest.approx(loss.item())
    assert sums["alternatives"].item() == pytest.approx(-any_of_them.item(), rel=1e-5)
    assert sums["loss"].item() == pytest.approx(loss.item() - 3 * any_of_them.item(), rel=1e-5)


def test_alternatives_that_are_next_to_impossible_still_have_a_gradient() -> None:
    soft = SoftTargets.of([8], {0: {8: 0.5, 7: 0.5}})
    batch = collate_examples(pack_rows([TokenizedExample([9], ([8],), soft_targets=(soft,))]))
    logprobs_2 = torch.tensor([-200.0, -201.0], requires_grad=True)
    loss = sft.all_alternatives_loss(batch, logprobs_2)
    loss.backward()
    both = torch.tensor([-200.0, -201.0])
    assert loss.item() == pytest.approx(-both.logsumexp(0).item())
    torch.testing.assert_close(logprobs_2.grad, -both.softmax(0))


def test_a_second_loss_leaves_less_to_what_is_no_alternative(tiny_model: Path, tmp_path: Path) -> None:
    """The same steps with it and without: more of the probability is on the alternatives together."""
    moves = ["e2e4", "d2d4", "g1f3", "e2e3"]
    alternatives = [{"start": 7, "end": 11, "texts": moves, "weights": [1, 1, 1, 1]}]
    chat = json.loads(_line(f"\\boxed{{{moves[0]}}}")) | {"alternatives": alternatives}
    data = tmp_path / "soft.jsonl"
    data.write_text((json.dumps(chat) + "\n") * 8)
    left = {}
    for coefficient in (0.0, 5.0):
        out = tmp_path / f"out{coefficient:g}"
        sft.run(_settings(tiny_model, data, out, alternatives_coefficient=coefficient, lr=3e-4))
        model = AutoModelForCausalLM.from_pretrained(out / "model", dtype=torch.float32)
        measured = sft.SftTask(model, _settings(tiny_model, data, out, alternatives_coefficient=1.0))
        source = ChatExamples(open_chats(data), AutoTokenizer.from_pretrained(tiny_model), max_length=384)
        left[coefficient] = measured.sums(collate_examples([source.examples([0])]))["alternatives"].item()
    assert left[5.0] < left[0.0]


def test_both_kinds_of_attention_learn_the_same(tiny_model: Path, data: Path, tmp_path: Path) -> None:
    """The answers share one prompt, which `eager` computes for each of them."""
    for attention in ("sdpa", "eager"):
        settings = _settings(tiny_model, data, tmp_path / attention, attention=attention, batch_size=16)
        sft.run(settings.model_copy(update={"eval_data": str(data)}))
    sdpa, eager = (_rows(tmp_path / name) for name in ("sdpa", "eager"))
    assert [row["loss"] for row in eager] == pytest.approx([row["loss"] for row in sdpa], rel=1e-4)
    assert eager[-1]["eval_loss"] == pytest.approx(sdpa[-1]["eval_loss"], rel=1e-4)
    assert sdpa[0]["tokens"] < 0.4 * eager[0]["tokens"]


def test_what_a_pass_holds_is_measured_and_changes_only_rounding(
    tiny_model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, **changes: object) -> tuple[bytes, list[float]]:
        how = {"batch_size": 16, "attention": "eager", "device": "cpu"} | changes  # 16 rows of 80 tokens
        folder = sft.run(_settings(tiny_model, data, tmp_path / name, **how))
        return (folder / "model.safetensors").read_bytes(), [row["loss"] for row in _rows(tmp_path / name)]

    whole = run("roomy")
    assert whole == run("one pass", micro_batch_tokens=10_000)
    monkeypatch.setitem(profile.SHARES, "cpu", 1e-9)
    parts = run("full")
    assert parts != whole
    assert parts[1] == pytest.approx(whole[1], rel=1e-4)
    choice = json.loads((tmp_path / "full" / profile.FILE).read_text())["choice"]
    assert choice["row_tokens"] <= 1024 < 2 * choice["row_tokens"]

    # A run that resumes computes in the same passes, whatever is free then.
    (tmp_path / "resumed").mkdir()
    shutil.copy(tmp_path / "full" / profile.FILE, tmp_path / "resumed")
    monkeypatch.setattr(loop, "measure", None)
    assert run("resumed") == parts


@pytest.mark.parametrize("fast", [True, False])
def test_auto_is_the_precision_that_the_cpu_is_fast_in(
    tiny_model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fast: bool
) -> None:
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: fast)
    losses = {}
    for precision in ("auto", "bf16", "fp32"):
        sft.run(_settings(tiny_model, data, tmp_path / precision, precision=precision, device="cpu", steps=1))
        losses[precision] = _rows(tmp_path / precision)[0]["loss"]
    assert losses["bf16"] != losses["fp32"]
    assert losses["auto"] == losses["bf16" if fast else "fp32"]


def test_every_example_comes_once_an_epoch_and_skipping_is_the_same_order(
    tiny_model: Path, data: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    source = ChatExamples(open_chats(data), tokenizer, max_length=200)

    def first(count: int, *, skip: int = 0) -> list[list[Sequence[int]]]:
        stream = shuffled_batches(source, batch_size=4, seed=7, skip=skip)
        return [[example.answers[0] for example in next(stream)] for _ in range(count)]

    assert sorted(ids for batch in first(4) for ids in batch) == sorted(
        example.answers[0] for example in source.examples(range(len(source)))
    )
    assert first(6)[3:] == first(3, skip=3)


@pytest.mark.parametrize("changes", [{}, {"lora_rank": 2, "row_tokens": 256}], ids=["whole", "lora, packed"])
def test_resuming_gives_the_bytes_of_not_stopping(
    tiny_model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    whole = sft.run(_settings(tiny_model, data, tmp_path / "whole", **changes))

    class KilledError(Exception):
        pass

    def until_step_5(source: object, **how: object) -> object:
        for number, batch in enumerate(shuffled_batches(source, **how)):  # type: ignore[arg-type]
            if number == 4:
                raise KilledError
            yield batch

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr("services.trainer.finetune.loop.shuffled_batches", until_step_5)
        sft.run(_settings(tiny_model, data, tmp_path / "cut", **changes))
    assert [row["step"] for row in _rows(tmp_path / "cut")] == [1, 2, 3, 4]
    resumed = sft.run(_settings(tiny_model, data, tmp_path / "cut", **changes))
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    told = [[(row["step"], row["loss"]) for row in _rows(tmp_path / name)] for name in ("whole", "cut")]
    assert told[0] == told[1]
    assert told[0][-1][1] < told[0][0][1]


def test_other_settings_do_not_resume(tiny_model: Path, data: Path, tmp_path: Path) -> None:
    sft.run(_settings(tiny_model, data, tmp_path / "out", steps=3))
    (tmp_path / "out" / "model").rename(tmp_path / "out" / "elsewhere")
    kept = tmp_path / "out" / "checkpoint"
    kept.mkdir()
    (kept / "state.json").write_text(json.dumps({"step": 3, "fingerprint": {"lr": "0.5"}}))
    with pytest.raises(InvalidInput, match=r"lr was '0.5', is '0.001'"):
        sft.run(_settings(tiny_model, data, tmp_path / "out"))


def test_a_finished_run_is_not_trained_over(tiny_model: Path, data: Path, tmp_path: Path) -> None:
    settings = _settings(tiny_model, data, tmp_path / "out", steps=1)
    sft.run(settings)
    with pytest.raises(InvalidInput, match="finished"):
        sft.run(settings)


@pytest.mark.parametrize(
    ("manifest", "style"),
    [
        (None, "mover-pieces"),
        ({"terms": {"recipe": {"task": "next-fen", "style": "fen"}}}, "mover-pieces"),
        ({"settings": {"style": "mover-twice"}}, "mover-twice"),  # data moves
        ({"terms": {"style": "mover-twice"}}, "mover-twice"),  # data annotate
        ({"terms": {"recipe": {"task": "engine-moves", "style": "mover-twice"}}}, "mover-twice"),
        ({"terms": {"recipe": {"task": "rookworld", "style": "fen"}}}, "rookworld"),
    ],
)
def test_a_model_names_the_style_of_its_data_or_else_of_its_base(
    tiny_model: Path, data: Path, tmp_path: Path, manifest: dict[str, object] | None, style: str
) -> None:
    base = shutil.copytree(tiny_model, tmp_path / "base")
    (base / MANIFEST_FILE).write_text(json.dumps({"style": "mover-pieces"}))
    if manifest:
        (data.parent / "manifest.json").write_text(json.dumps(manifest))
    settings = _settings(base, data, tmp_path / "out")
    assert style_of(settings) == style
    assert style_of(settings.model_copy(update={"style": "fen"})) == "fen"


def test_a_style_that_nobody_names_is_warned_of(
    tiny_model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert style_of(_settings(tiny_model, data, tmp_path / "out")) is None
    assert "neither --style nor a manifest" in caplog.text


def test_a_warm_up_that_would_not_end_is_shortened(
    tiny_model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sft.run(_settings(tiny_model, data, tmp_path / "out", steps=10, warmup_steps=11))
    assert "--warmup-steps 11 is more than --steps 10: the learning rate rises in 1 steps" in caplog.text
    rates = [row["lr"] for row in _rows(tmp_path / "out")]
    assert rates[1] == max(rates) == 1e-3
    assert rates[-1] < 0.1 * rates[1]


def test_a_model_has_a_manifest(tiny_model: Path, data: Path, tmp_path: Path) -> None:
    folder = sft.run(_settings(tiny_model, data, tmp_path / "out", steps=1, style="mover-squares"))
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    # <think> e2 e4 </think> \boxed{ e2 e4 } <|end|>
    assert (manifest["style"], manifest["box"], manifest["answer_tokens"]) == ("mover-squares", "uci", 9)
    assert manifest["base"].startswith(f"{tiny_model}@sha256:")
    assert manifest["data"] == {"path": str(data), "sha256": hashlib.sha256(data.read_bytes()).hexdigest()}
    assert manifest["trained"]["lr"] == "0.001"
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1, "others may read the weights too"


def test_no_model_is_written_where_no_answer_fits(tiny_model: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"16 of 16 examples in .* do not fit into --max-length 70"):
        sft.run(_settings(tiny_model, data, tmp_path / "out", max_length=70))
    assert not (tmp_path / "out" / "model").exists()


def test_held_out_examples_are_evaluated(tiny_model: Path, data: Path, tmp_path: Path) -> None:
    settings = _settings(tiny_model, data, tmp_path / "out", eval_data=data, eval_every=4, lr=1e-9)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    source = ChatExamples(open_chats(data), AutoTokenizer.from_pretrained(tiny_model), max_length=384)
    task = sft.SftTask(model, settings)
    examples = source.examples(range(len(source)))
    expected = (task.sums(collate_examples(pack_rows(examples)))["loss"] / task.weight(examples)).item()
    sft.run(settings)
    evaluated = {row["step"]: row for row in _rows(settings.out) if "eval_loss" in row}
    assert sorted(evaluated) == [4, 6]
    assert evaluated[6]["eval_loss"] == pytest.approx(expected, rel=1e-5)
    assert evaluated[6]["eval_perplexity"] == pytest.approx(torch.tensor(expected).exp().item(), rel=1e-5)
    second = _settings(
        tiny_model, data, tmp_path / "second", alternatives_coefficient=2.0, eval_data=data, lr=1e-9
    )
    sft.run(second)
    last = _rows(second.out)[-1]
    # Each token has one alternative, itself.
    assert last["eval_loss"] == pytest.approx(3 * expected, rel=1e-4)
    assert last["eval_perplexity"] == pytest.approx(evaluated[6]["eval_perplexity"], rel=1e-4)


def test_an_adapter_is_left_as_the_servers_read_it_and_merged(
    tiny_model: Path, data: Path, tmp_path: Path
) -> None:
    from peft import PeftModel

    out = sft.run(_settings(tiny_model, data, tmp_path / "out", lora_rank=4)).parent
    adapter = out / "adapters" / "policy-v000001"
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["r"] == 4
    assert "lm_head" not in config["target_modules"]
    assert set(config["target_modules"]) >= {"q_proj", "v_proj", "down_proj"}
    base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    merged = AutoModelForCausalLM.from_pretrained(out / "model", dtype=torch.float32)
    ids = torch.tensor([[5, 9, 30, 31]])
    loaded = PeftModel.from_pretrained(base, adapter)(input_ids=ids).logits
    assert torch.allclose(loaded, merged(input_ids=ids).logits, atol=1e-5)
    moved = load_file(out / "model" / "model.safetensors")
    start = load_file(tiny_model / "model.safetensors")
    assert torch.equal(moved["model.embed_tokens.weight"], start["model.embed_tokens.weight"])
    assert not torch.equal(
        moved["model.layers.0.mlp.up_proj.weight"], start["model.layers.0.mlp.up_proj.weight"]
    )


def test_an_adapter_is_trained_further(tiny_model: Path, data: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    merged = sft.run(_settings(tiny_model, data, first, lora_rank=4))

    def further(base: Path, name: str, **changes: object) -> Path:
        values = {"lora_rank": 4, "steps": 1, **changes}
        return sft.run(_settings(base, data, tmp_path / name, **values)).parent

    further(tiny_model, "second", adapter=str(first))
    further(merged, "of the merged model")
    begun = [_rows(tmp_path / name)[0]["loss"] for name in ("second", "of the merged model", "first")]
    assert begun[0] == pytest.approx(begun[1], abs=1e-5)
    assert begun[0] < begun[2]
    with pytest.raises(InvalidInput, match="another kind of adapter: r was 4, is 2"):
        further(tiny_model, "narrow", adapter=str(first), lora_rank=2)
    with pytest.raises(InvalidInput, match=r"but .*policy-v000001 was trained on sha256:"):
        further(merged, "other base", adapter=str(first))
    whole = sft.run(_settings(tiny_model, data, tmp_path / "whole", steps=1)).parent
    # Before the data, which would take long, are read.
    nothing = _settings(tiny_model, tmp_path / "no.jsonl", tmp_path / "x", lora_rank=4, adapter=str(whole))
    with pytest.raises(SetupError, match="no run"):
        sft.run(nothing)


@pytest.mark.parametrize("kind", ["dense", "mixture of experts"])
def test_its_adapter_merges_into_the_same_model(
    kind: str, tiny_model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model if kind == "dense" else write_mixture(tmp_path / "base", tiny_model)
    out = sft.run(_settings(model, data, tmp_path / "out", lora_rank=2, lora_targets="q_proj,o_proj")).parent
    told = {"style": "mover-pieces", "box": "san", "answer_tokens": 99}
    (out / "model" / MANIFEST_FILE).write_text(json.dumps(told))
    settings = MergeSettings(run=str(out), out=tmp_path / "merged", save_dtype="float32")
    merge.run(settings)
    merged, exported = (load_file(path / "model.safetensors") for path in (settings.out, out / "model"))
    assert merged.keys() == exported.keys()
    for name, tensor in exported.items():
        torch.testing.assert_close(merged[name], tensor)
    manifest = json.loads((settings.out / MANIFEST_FILE).read_text())
    assert manifest | told == manifest
    assert manifest["base"] == f"{model.name}@{weights_digest(model)}"
    assert "rounded" not in caplog.text

    state = out / "adapters" / "policy-v000001" / "state.json"
    state.write_text(state.read_text().replace(f"@{weights_digest(model)}", ""))
    sums = state.with_name("SHA256SUMS")
    lines = [line for line in sums.read_text().splitlines() if not line.endswith("state.json")]
    sums.write_text("\n".join(lines) + "\n")
    merge.run(settings.model_copy(update={"out": tmp_path / "older", "save_dtype": "base"}))
    assert "does not say which weights" in caplog.text
    base = torch.float32 if kind == "dense" else torch.bfloat16
    assert {t.dtype for t in load_file(tmp_path / "older" / "model.safetensors").values()} == {base}
    assert ("rounded to torch.bfloat16" in caplog.text) == (base == torch.bfloat16)


@pytest.mark.parametrize("lora_rank", [0, 2])
def test_a_gpt2_without_a_chat_template_learns_too(tmp_path: Path, data: Path, lora_rank: int) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({"</s>": 0, **{letter: i for i, letter in enumerate(letters, 1)}}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>").save_pretrained(tmp_path / "gpt2")
    torch.manual_seed(0)
    shape = {"n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 257, "n_positions": 256}
    GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=0)).save_pretrained(tmp_path / "gpt2")
    settings = _settings(
        tmp_path / "gpt2",
        data,
        tmp_path / "out",
        lr=2e-2,
        lora_rank=lora_rank,
        row_tokens=256,
        steps=15,
        max_length=250,
    )
    folder = sft.run(settings)
    told = _rows(settings.out)
    assert told[-1]["loss"] < 0.99 * told[0]["loss"]
    assert AutoTokenizer.from_pretrained(folder).chat_template is not None
    assert AutoModelForCausalLM.from_pretrained(folder).config.n_positions == 256

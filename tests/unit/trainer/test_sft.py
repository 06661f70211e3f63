"""Supervised fine-tuning: which tokens carry loss, in which order examples come, and resuming."""

import json
from pathlib import Path

import pytest

from rookery.errors import InvalidInput
from services.trainer.settings import SftSettings

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from transformers import AutoTokenizer  # noqa: E402

from services.trainer import sft  # noqa: E402
from services.trainer.examples import ChatFile, Example, batches, tokenize  # noqa: E402

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
    values = {"batch_size": 4, "steps": 6, "lr": 1e-3, "warmup_steps": 1, "save_every": 3, "bf16": False}
    values |= {"threads": 1, "save_dtype": "float32"}
    return SftSettings(model=model, data=data, out=out, **(values | changes))  # type: ignore[arg-type]


def test_only_the_answer_and_its_end_carry_loss(tiny_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    [example] = tokenize([json.loads(_line("\\boxed{e2e4}"))["messages"]], tokenizer, max_length=200)
    _, labels = sft.collate([example], pad_id=0)
    learned = [token for token in labels[0].tolist() if token != sft.IGNORE]
    assert tokenizer.decode(learned) == "\\boxed{e2e4}<|end|>"
    assert tokenizer.decode(example.token_ids[: example.prompt_length]).endswith("<|assistant|>")


def test_padding_carries_no_loss() -> None:
    ids, labels = sft.collate([Example([5, 6, 7], 1), Example([5, 6, 7, 8, 9], 2)], pad_id=0)
    assert ids.tolist() == [[5, 6, 7, 0, 0], [5, 6, 7, 8, 9]]
    assert labels.tolist() == [[-100, 6, 7, -100, -100], [-100, -100, 7, 8, 9]]


def test_the_loss_is_the_cross_entropy_of_the_full_logits(tiny_model: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    ids, labels = sft.collate([Example([5, 6, 7], 1), Example([9, 6, 17, 8, 9], 2)], pad_id=0)
    expected = model(input_ids=ids, labels=labels).loss
    assert sft.sft_loss(model, ids, labels).item() == pytest.approx(expected.item(), rel=1e-5)


def test_every_example_comes_once_an_epoch_and_skipping_is_the_same_order(
    tiny_model: Path, data: Path
) -> None:
    tokenizer, file = AutoTokenizer.from_pretrained(tiny_model), ChatFile(data)

    def first(count: int, *, skip: int = 0) -> list[list[list[int]]]:
        stream = batches(file, tokenizer, batch_size=4, max_length=200, seed=7, skip=skip)
        return [[example.token_ids for example in next(stream)] for _ in range(count)]

    epoch = first(4)
    assert sorted(ids for batch in epoch for ids in batch) == sorted(
        example.token_ids
        for i in range(len(file))
        for example in tokenize([file[i]], tokenizer, max_length=200)
    )
    assert first(6)[3:] == first(3, skip=3)


def test_resuming_gives_the_weights_of_not_stopping(
    tiny_model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sft.run(_settings(tiny_model, data, tmp_path / "whole"))

    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(sft, "_export", killed)
        sft.run(_settings(tiny_model, data, tmp_path / "cut"))
    resumed = sft.run(_settings(tiny_model, data, tmp_path / "cut"))
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_a_finished_run_is_not_trained_over(tiny_model: Path, data: Path, tmp_path: Path) -> None:
    settings = _settings(tiny_model, data, tmp_path / "out", steps=1)
    sft.run(settings)
    with pytest.raises(InvalidInput, match="finished"):
        sft.run(settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "missing or empty"),
        ('{"messages": [{"role": "user", "content": "x"}]}\n', r"moves.jsonl:1: the last message"),
        (_line("a") + "\n{nonsense\n", r"moves.jsonl:2: not a chat example: b'\{nonsense'"),
    ],
)
def test_bad_examples_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "moves.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        for index in range(len(ChatFile(path))):
            ChatFile(path)[index]

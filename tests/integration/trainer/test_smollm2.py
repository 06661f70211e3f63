"""A real language model: what is made of its wheel, and the adapter of models/smollm2-chess."""

from pathlib import Path
from typing import Any

import chess
import pytest

from rookery.alternatives import Alternatives
from rookery.answers import extract
from rookery.notation import read_move
from rookery.prompt import render
from services.trainer.examples.chats import Chat, tokenize
from services.trainer.finetune.model import load_chat_tokenizer
from services.trainer.merge import MergeSettings, run
from tests.builders import position

pytestmark = [pytest.mark.smollm2, pytest.mark.torch]

ROOT = Path(__file__).resolve().parents[3]


def greedy(folder: Path, messages: list[dict[str, str]], *, tokens: int) -> str:
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = load_chat_tokenizer(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    asked = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**asked, max_new_tokens=tokens, do_sample=False)[0]
    return str(tokenizer.decode(answer[asked["input_ids"].shape[1] :]))


def test_the_model_of_the_wheel_knows_the_capital_of_france(smollm2: Path) -> None:
    question = {"role": "user", "content": "What is the capital of France?"}
    assert greedy(smollm2, [question], tokens=20) == "The capital of France is Paris.<|im_end|>"


def test_moves_in_san_are_soft_targets_of_its_tokens(smollm2: Path) -> None:
    """Both ways to castle, a space before a move, a promotion with check before the closing brace."""
    texts = ("O-O", "O-O-O", "Nf3", "exd8=Q+")
    answer = "<think>Nf3 O-O</think>\\boxed{O-O}"
    spans = [
        Alternatives(start, start + len(t), texts, (0.1, 0.2, 0.3, 0.4))
        for start, t in ((7, "Nf3"), (11, "O-O"))
    ]
    chat = Chat([{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}], spans)
    tokenizer = load_chat_tokenizer(smollm2)
    [example] = tokenize([chat], tokenizer)
    [soft] = example.soft_targets
    assert soft is not None
    learned: dict[int, dict[str, float]] = {}
    for index, token, weight in zip(soft.indices, soft.tokens, soft.weights, strict=True):
        learned.setdefault(index, {})[tokenizer.decode(token)] = weight
    choices = [targets for targets in learned.values() if len(targets) > 1]
    assert choices == [
        pytest.approx({"O": 0.3, "N": 0.3, "ex": 0.4}),
        pytest.approx({" O": 0.3, " N": 0.3, " ex": 0.4}),
        pytest.approx({"</": 1 / 3, "-": 2 / 3}),
    ]


@pytest.mark.parametrize("fen", [chess.STARTING_FEN, "r3k3/8/8/8/8/8/4P3/R3K2R b q - 3 40"])
def test_the_shipped_adapter_answers_with_a_legal_move(smollm2: Path, tmp_path: Path, fen: str) -> None:
    adapter, model = ROOT / "models" / "smollm2-chess", tmp_path / "model"
    run(MergeSettings(run=str(adapter), base=str(smollm2), out=model))
    prompt = render(position(fen), style="pieces-legal-san")
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    answer = greedy(model, messages, tokens=200)
    assert read_move(extract(answer).text, chess.Board(fen)).move is not None, answer

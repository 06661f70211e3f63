"""Whatever the chat template, no token of the prompt carries loss."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from rookery.config.trainer import TrainerSettings
from rookery.trace import Completion
from services.trainer.batches.micro_batches import collate, micro_batches
from services.trainer.batches.rows import prepare_batch
from services.trainer.model.head import TokenScores
from services.trainer.training.update import Objective
from tests.builders import changed
from tests.unit.trainer.groups import make_group, prompt_places
from tests.unit.trainer.reference import OBJECTIVES

TEMPLATES = {
    "chatml": "{% for m in messages %}<{{ m.role }}> {{ m.content }}</think>{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}",
    "prefilled": "{% for m in messages %}{{ m.content }}-{% endfor %}"
    "{% if add_generation_prompt %}<think> {% endif %}",
    "instruct": "{% for m in messages %}- {{ m.content }} -{% endfor %}",
    "bare": "{% for m in messages %}{{ m.content }}{% endfor %}",
}

texts = st.text("KQRBNPkqrbnp.?- ", min_size=1, max_size=12)
answers = st.lists(st.lists(st.integers(5, 79), min_size=1, max_size=6), min_size=2, max_size=4)


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path):  # type: ignore[no-untyped-def]
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.mark.parametrize("template", TEMPLATES)
@settings(max_examples=settings.default.max_examples // 4)
@given(
    text=texts, said=answers, row_tokens=st.integers(16, 90), objective=st.sampled_from(sorted(OBJECTIVES))
)
def test_only_completion_tokens_are_predicted_and_only_they_move_the_loss(
    template: str, text: str, said: list[list[int]], row_tokens: int, objective: str, tokenizer
) -> None:
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], chat_template=TEMPLATES[template], add_generation_prompt=True,
        tokenize=True, return_dict=False,
    )  # fmt: skip
    group = make_group(1, size=len(said))
    traces = tuple(
        changed(trace, completion=Completion("", tuple(ids), (-1.0,) * len(ids), "stop", 0))
        for trace, ids in zip(group.traces, said, strict=True)
    )
    group = replace(group, prompt_token_ids=tuple(prompt), traces=traces)
    chosen = TrainerSettings(model=Path(), run_dir=Path(), row_tokens=row_tokens, objective=objective)
    batch = prepare_batch([group], version=0, settings=chosen, averages=None)
    trained: list[int] = []
    for rows in micro_batches(batch.rows, tokens=100):
        tensors = collate(rows)
        trained += tensors.targets_N.tolist()
        logprobs = torch.full((tensors.input_ids_1T.numel(),), -1.1).requires_grad_()
        seen = logprobs[tensors.predictor_N]
        loss, _ = Objective.of(chosen, coefficient=0.0, normaliser=batch.normaliser)(
            TokenScores(seen, torch.zeros_like(seen), torch.zeros(len(seen), 0)), tensors
        )
        loss.backward()
        touched = set(logprobs.grad.nonzero()[:, 0].tolist())
        assert not touched & prompt_places(rows)
    assert sorted(trained) == sorted(token for ids in said for token in ids)

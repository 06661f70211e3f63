"""Generation beside transformers', and what a seed, a limit and a stop token mean."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from rookery.errors import InvalidInput
from rookery.trace import Sampling
from services.trainer.gpt2 import loader
from services.trainer.gpt2.generate import Generated, draw, generate, log_distribution
from services.trainer.gpt2.model import Gpt2
from tests.unit.trainer.gpt2_models import write_gpt2

GREEDY = Sampling(temperature=0.0, max_tokens=20)
PROMPTS = [[5, 6, 7, 8, 9, 10], [11], [12, 13, 14]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gpt2(tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Gpt2:
    return loader.load(folder)


def their_greedy(folder: Path, **options: Any) -> list[list[int]]:
    from transformers import GPT2LMHeadModel

    other = GPT2LMHeadModel.from_pretrained(folder).eval()
    width = max(map(len, PROMPTS))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in PROMPTS])
    present = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in PROMPTS])
    done = other.generate(ids, attention_mask=present, do_sample=False, pad_token_id=0, **options)
    return done[:, width:].tolist()


def test_greedy_is_that_of_transformers(model: Gpt2, folder: Path) -> None:
    ours = [row.token_ids for [row] in generate(model, PROMPTS, sampling=GREEDY)]
    assert ours == their_greedy(folder, max_new_tokens=20, eos_token_id=None)


def test_a_stop_token_ends_its_row_alone(model: Gpt2, folder: Path) -> None:
    unbounded = [row.token_ids for [row] in generate(model, PROMPTS, sampling=GREEDY)]
    stop = unbounded[0][4]
    rows = [row for [row] in generate(model, PROMPTS, sampling=GREEDY, stop=[stop])]
    for row, whole in zip(rows, unbounded, strict=True):
        end = whole.index(stop) + 1 if stop in whole else len(whole)
        assert row.token_ids == whole[:end]
        assert row.stopped == (stop in whole)
    assert rows[0].stopped
    theirs = their_greedy(folder, max_new_tokens=20, eos_token_id=stop)
    assert [row.token_ids for row in rows] == [
        t[: len(r.token_ids)] for t, r in zip(theirs, rows, strict=True)
    ]


def test_logprobs_are_those_of_a_plain_forward_pass(model: Gpt2) -> None:
    for prompt, rows in zip(
        PROMPTS, generate(model, PROMPTS, sampling=Sampling(0.7, max_tokens=9), count=3, seed=3), strict=True
    ):
        for row in rows:
            ids = torch.tensor([prompt + row.token_ids])
            logs = (model(ids)[0, len(prompt) - 1 : -1] / 0.7).log_softmax(-1)
            expected = logs.gather(-1, torch.tensor(row.token_ids)[:, None])[:, 0]
            assert torch.allclose(torch.tensor(row.logprobs), expected, atol=1e-5)


def test_a_row_depends_on_its_prompt_and_seed_alone(model: Gpt2) -> None:
    together = generate(model, PROMPTS, sampling=Sampling(max_tokens=12), count=2, seed=40)
    for number, prompt in enumerate(PROMPTS):
        [alone] = generate(model, [prompt], sampling=Sampling(max_tokens=12), count=2, seed=40 + 2 * number)
        assert [r.token_ids for r in alone] == [r.token_ids for r in together[number]]
    again = generate(model, PROMPTS, sampling=Sampling(max_tokens=12), count=2, seed=40)
    assert again == together
    first, second = together[0]
    assert first.token_ids != second.token_ids


def test_samples_follow_the_distribution(model: Gpt2) -> None:
    """2,000 first tokens beside the model's own probabilities: total variation like that of chance."""
    [rows] = generate(model, PROMPTS[:1], sampling=Sampling(max_tokens=1), count=2000, seed=0)
    counts = Counter(row.token_ids[0] for row in rows)
    with torch.no_grad():
        shares = model(torch.tensor(PROMPTS[:1]))[0, -1].softmax(-1)
    distance = 0.5 * sum(abs(counts[token] / 2000 - share) for token, share in enumerate(shares.tolist()))
    chance = 0.5 * sum((2 * p * (1 - p) / (torch.pi * 2000)) ** 0.5 for p in shares.tolist())
    assert distance < 1.5 * chance


@pytest.mark.parametrize("k", [1, 3])
def test_top_k_keeps_the_likeliest(k: int) -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    logs = log_distribution(logits, Sampling(0.8, top_k=k))
    kept = logs > -torch.inf
    assert kept.sum(-1).tolist() == [k] * 4
    assert torch.equal(logs.argmax(-1), logits.argmax(-1))
    assert torch.allclose(logs.exp().sum(-1), torch.ones(4))


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_top_p_is_that_of_transformers(p: float) -> None:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = 3 * torch.randn(8, 50, generator=torch.Generator().manual_seed(0))
    ours = log_distribution(logits, Sampling(0.8, top_k=20, top_p=p))
    theirs = TopPLogitsWarper(p)(None, TopKLogitsWarper(20)(None, TemperatureLogitsWarper(0.8)(None, logits)))
    assert torch.allclose(ours, theirs.log_softmax(-1), atol=1e-6)


def test_an_impossible_token_is_never_drawn() -> None:
    logs = torch.tensor([[-torch.inf, 0.0, -torch.inf], [-torch.inf, -0.7, -0.7]]).log_softmax(-1)
    for uniform in (0.0, 0.5, 1.0 - 2**-24):
        tokens = draw(logs, torch.tensor([uniform] * 2), greedy=False).tolist()
        assert tokens[0] == 1
        assert tokens[1] in (1, 2)


@pytest.mark.parametrize(
    ("prompts", "limit"),
    [([[]], 4), ([[1] * 61], 4), ([], 4), ([[1]], 0)],
    ids=["empty", "long", "none", "no"],
)
def test_what_cannot_be_generated_is_refused(model: Gpt2, prompts: list[list[int]], limit: int) -> None:
    with pytest.raises(InvalidInput):
        generate(model, prompts, sampling=Sampling(max_tokens=limit))


def test_the_last_position_is_used(model: Gpt2) -> None:
    [[row]] = generate(model, [[1] * 60], sampling=Sampling(max_tokens=4))
    assert isinstance(row, Generated)
    assert len(row.token_ids) == 4

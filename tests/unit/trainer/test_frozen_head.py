"""A frozen head's gradient, made in the forward pass, is that of autograd and of finite differences."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from services.trainer import frozen_head, head  # noqa: E402
from services.trainer.frozen_head import frozen_scores, is_frozen  # noqa: E402


def make(tokens: int = 13, width: int = 6, vocabulary: int = 29, dtype=torch.float64) -> tuple:
    torch.manual_seed(0)
    linear = torch.nn.Linear(width, vocabulary, bias=False, dtype=dtype).requires_grad_(False)
    hidden = (3 * torch.randn(tokens, width, dtype=dtype)).requires_grad_()
    return linear, hidden, torch.randint(vocabulary, (tokens,))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("tile", [29, 5 * 29, 1 << 22])
def test_it_is_autograds(temperature: float, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_head, "_TILE_LOGITS", tile)
    linear, hidden, targets = make()
    weights = torch.randn(len(targets), dtype=torch.float64)
    logprobs, entropy = frozen_scores(linear, hidden, targets, temperature=temperature)
    (logprobs * weights).sum().backward()
    gradient, hidden.grad = hidden.grad, None
    logs = (linear(hidden) / temperature).log_softmax(-1)
    expected = logs.gather(-1, targets[:, None])[:, 0]
    (expected * weights).sum().backward()
    torch.testing.assert_close(logprobs, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(entropy, -(logs.exp() * logs).sum(-1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, hidden.grad, rtol=1e-12, atol=1e-12)
    assert not entropy.requires_grad


def test_it_passes_finite_differences() -> None:
    linear, hidden, targets = make(tokens=4)
    torch.autograd.gradcheck(lambda h: frozen_scores(linear, h, targets, temperature=0.7)[0], (hidden,))


def test_logits_far_apart_stay_finite() -> None:
    linear, hidden, targets = make(dtype=torch.float32)
    logprobs, entropy = frozen_scores(linear, 1e4 * hidden, targets, temperature=1.0)
    logprobs.sum().backward()
    assert torch.isfinite(logprobs).all()
    assert torch.isfinite(entropy).all()
    assert torch.isfinite(hidden.grad).all()


def test_bfloat16_weights_give_float32_scores() -> None:
    linear, hidden, targets = make(dtype=torch.bfloat16)
    logprobs, _ = frozen_scores(linear, hidden, targets, temperature=1.0)
    logprobs.sum().backward()
    assert (logprobs.dtype, hidden.grad.dtype) == (torch.float32, torch.bfloat16)


def test_nothing_is_kept_where_nobody_asks() -> None:
    linear, hidden, targets = make()
    logprobs, _ = frozen_scores(linear, hidden.detach(), targets, temperature=1.0)
    assert not logprobs.requires_grad
    with torch.no_grad():
        assert not frozen_scores(linear, hidden, targets, temperature=1.0)[0].requires_grad


def test_the_head_takes_it_only_where_it_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(
        head, "frozen_scores", lambda *args, **rest: calls.append(1) or frozen_scores(*args, **rest)
    )
    linear, hidden, targets = make()
    options = {"vocabulary": 29, "temperature": 1.0}
    head.score_tokens(linear, hidden, targets, **options)
    assert len(calls) == 1
    head.score_tokens(linear, hidden, targets, **options, wanted=head.Wanted(entropy=True))
    head.score_tokens(linear, hidden, targets, **options, reference_ND=hidden.detach())
    learning = torch.nn.Linear(6, 29, bias=False, dtype=torch.float64)
    head.score_tokens(learning, hidden, targets, **options)
    assert len(calls) == 1
    assert not is_frozen(learning)
    assert not is_frozen(torch.nn.Linear(2, 3).requires_grad_(False))

"""A frozen head's gradient, made in the forward pass, is that of autograd and of finite differences."""

import pytest
import torch

from services.trainer.model import frozen_head, head
from services.trainer.model.base_model import Head
from services.trainer.model.frozen_head import frozen_scores, is_frozen


def scores(linear, hidden, targets, *, temperature: float) -> tuple:
    return frozen_scores(Head(linear), hidden, targets, temperature=temperature)[:2]


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
    logprobs, entropy = scores(linear, hidden, targets, temperature=temperature)
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
    torch.autograd.gradcheck(lambda h: scores(linear, h, targets, temperature=0.7)[0], (hidden,))


def test_logits_far_apart_stay_finite() -> None:
    linear, hidden, targets = make(dtype=torch.float32)
    logprobs, entropy = scores(linear, 1e4 * hidden, targets, temperature=1.0)
    logprobs.sum().backward()
    assert torch.isfinite(logprobs).all()
    assert torch.isfinite(entropy).all()
    assert torch.isfinite(hidden.grad).all()


def test_bfloat16_weights_give_float32_scores() -> None:
    linear, hidden, targets = make(dtype=torch.bfloat16)
    logprobs, _ = scores(linear, hidden, targets, temperature=1.0)
    logprobs.sum().backward()
    assert (logprobs.dtype, hidden.grad.dtype) == (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("scale", [0.0, 8.0, 30.0], ids=["unsure", "sure", "almost certain"])
def test_bfloat16_gradients_of_sure_tokens_are_as_good_as_autograds(scale: float) -> None:
    """Where p(t) is near 1, two rows of the gradient all but cancel."""
    linear, _, targets = make(tokens=24, dtype=torch.bfloat16)
    weight = linear.weight.detach()
    hidden = (scale * weight[targets] / weight[targets].norm(dim=-1, keepdim=True)).requires_grad_()

    def slope(logprobs: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(logprobs.sum(), of)[0].double()

    def plain(of: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (of @ weight.T).to(torch.promote_types(of.dtype, torch.float32)).log_softmax(-1)

    exact = hidden.detach().double().requires_grad_()
    rows = torch.arange(len(targets))
    expected = slope(plain(exact, weight.double())[rows, targets], exact)
    autograd = slope(plain(hidden, weight)[rows, targets], hidden)
    ours = slope(scores(linear, hidden, targets, temperature=1.0)[0], hidden)
    error, allowed = ((x - expected).norm(dim=-1) / expected.norm(dim=-1) for x in (ours, autograd))
    assert error.median() < 1.5 * allowed.median() + 0.005


def test_nothing_is_kept_where_nobody_asks() -> None:
    linear, hidden, targets = make()
    logprobs, _ = scores(linear, hidden.detach(), targets, temperature=1.0)
    assert not logprobs.requires_grad
    with torch.no_grad():
        assert not scores(linear, hidden, targets, temperature=1.0)[0].requires_grad


@pytest.mark.parametrize("learned", ["policy_reference", "reference_policy", "symmetric", None, "entropy"])
@pytest.mark.parametrize("own", [False, True], ids=["one head", "two heads"])
@pytest.mark.parametrize(("scale", "cap"), [(1.0, 0.0), (0.3, 0.0), (1.7, 4.0)])
def test_beside_a_reference_it_is_autograds_too(
    learned: str | None, own: bool, scale: float, cap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's other way, in which autograd does it, stands beside it."""
    monkeypatch.setattr(frozen_head, "_TILE_LOGITS", 5 * 29)
    linear, hidden, targets = make()
    base = torch.nn.Linear(6, 29, bias=False, dtype=torch.float64).requires_grad_(False)
    gradients = {"entropy": True} if learned == "entropy" else {"kl": learned}
    options = {
        "vocabulary": 29, "temperature": 0.7, "reference_ND": hidden.detach() + torch.randn_like(hidden) / 2,
        "reference_head": Head(base, scale, cap) if own else None,
        "with_gradient": head.WithGradient(**gradients),
    }  # fmt: skip
    found = []
    for frozen in (True, False):
        monkeypatch.setattr(head, "is_frozen", lambda _, frozen=frozen: frozen)
        one = head.score_tokens(Head(linear, scale, cap), hidden, targets, **options)
        total = one.logprobs_N @ torch.linspace(-1, 2, 13, dtype=torch.float64)
        for more in (one.kl_N, one.entropy_N if learned == "entropy" else None):
            if more is not None:
                total = total + more @ torch.linspace(3, -1, 13, dtype=torch.float64)
        (gradient,) = torch.autograd.grad(total, hidden)
        found.append((one, gradient))
    (mine, gradient), (theirs, expected) = found
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)
    for name in ("logprobs_N", "entropy_N", "reference_logprobs_N", "reference_kl_N", "kl_N"):
        a, b = getattr(mine, name), getattr(theirs, name)
        assert (a is None) == (b is None), name
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
            assert a.requires_grad == b.requires_grad, name


def test_the_head_takes_it_only_where_it_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(
        head, "frozen_scores", lambda *args, **rest: calls.append(1) or frozen_scores(*args, **rest)
    )
    linear, hidden, targets = make()
    options = {"vocabulary": 29, "temperature": 1.0}
    head.score_tokens(Head(linear), hidden, targets, **options)
    assert len(calls) == 1
    learning = torch.nn.Linear(6, 29, bias=False, dtype=torch.float64)
    head.score_tokens(Head(learning), hidden, targets, **options)
    beside = {**options, "reference_ND": hidden.detach()}
    head.score_tokens(Head(linear), hidden, targets, **beside, reference_head=Head(learning))
    assert len(calls) == 1
    assert not is_frozen(Head(learning))
    assert not is_frozen(Head(torch.nn.Linear(2, 3).requires_grad_(False)))

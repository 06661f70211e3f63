"""Precision and compilation change how a step is computed, and its numbers only by rounding."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from services.trainer.batches.micro_batches import collate
from services.trainer.batches.rows import prepare_batch
from services.trainer.model.policies import build_policy
from services.trainer.tiny import build_tiny
from services.trainer.training.step import RunningState, train_step
from tests.gpt2 import write_rookworld_model
from tests.unit.trainer.groups import make_group

MODELS: dict[str, tuple[Callable[..., Path], int]] = {
    "adapter": (lambda out: build_tiny(out, seed=1, hidden_size=64, layers=1, intermediate_size=64), 4),
    "gpt2, every weight": (lambda out: write_rookworld_model(out, n_layer=1), 0),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    build, rank = MODELS[request.param]
    return build(tmp_path_factory.mktemp("model")), rank


class Taken(torch.optim.SGD):
    """Notes gradients and moves nothing."""

    def __init__(self, parameters: "list[torch.nn.Parameter]") -> None:
        super().__init__(parameters, lr=0.0)
        self.gradients: list[torch.Tensor] = []

    def step(self, closure: None = None) -> None:
        parameters = self.param_groups[0]["params"]
        self.gradients.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]))


def computed(
    model: tuple[Path, int], folder: Path, steps: int = 1, **how: object
) -> "tuple[torch.Tensor, torch.Tensor, set[torch.dtype]]":
    """Log-probabilities and the gradients of some steps, and the types of what is trained."""
    path, rank = model
    settings = TrainerSettings(
        model=path, run_dir=folder, device="cpu", lora_rank=rank, kl_report_every=0, max_grad_norm=1e9, **how
    )
    policy = build_policy(settings)
    optimizer = Taken(policy.parameters)
    for step in range(steps):  # of other sizes each time, as rollouts are
        groups = [make_group(10 * step + n, prompt_length=5 + step + n) for n in range(3)]
        train_step(policy, optimizer, groups, step=step, settings=settings, state=RunningState())
    batch = prepare_batch([make_group(1)], version=0, settings=settings, averages=None)
    with torch.no_grad():
        logprobs = policy.score(collate(batch.rows)).logprobs_N
    return logprobs, torch.stack(optimizer.gradients), {p.dtype for p in policy.parameters}


def test_bfloat16_rounds_and_no_more(model: tuple[Path, int], tmp_path: Path) -> None:
    """Eight bits of mantissa: a unit of 0.4%."""
    (exact, gradient, _), (rounded, about, trained) = (
        computed(model, tmp_path, precision=precision) for precision in ("fp32", "bf16")
    )
    assert trained == {torch.float32}
    assert 0 < (exact - rounded).abs().max() < 0.05
    angle = torch.nn.functional.cosine_similarity(gradient.flatten(), about.flatten(), dim=0)
    assert angle > 0.99


@pytest.mark.parametrize("fast", [True, False])
def test_auto_is_what_the_device_is_fast_in(
    model: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fast: bool
) -> None:
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: fast)
    (found, gradient, _), (expected, its_gradient, _) = (
        computed(model, tmp_path, precision=precision) for precision in ("auto", "bf16" if fast else "fp32")
    )
    assert torch.equal(found, expected)
    assert torch.equal(gradient, its_gradient)


@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
def test_compiled_layers_have_the_numbers_of_plain_ones(
    model: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the graphs and the gradient of compiled code, but without its C++, which takes a minute."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    (exact, gradients, _), (compiled, about, _) = (
        computed(model, tmp_path, steps=2, compile=compiled) for compiled in (False, True)
    )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    torch.testing.assert_close(compiled, exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(about, gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("flag", "setting"),
    [
        ("--gradient-checkpointing", "gradient_checkpointing"),
        ("--base-bits=4", "base_bits=4"),
        ("--sharding=fsdp2", "sharding=fsdp2"),
    ],
)
def test_what_is_not_compiled_is_refused(flag: str, setting: str) -> None:
    given = ["--model", "m", "--run-dir", "r", "--compile", flag]
    with pytest.raises(SetupError, match=f"compile cannot be used with {setting}"):
        TrainerSettings.parse(given, prog="trainer")

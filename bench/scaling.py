"""`python -m bench.scaling`: how the loss of `rookery sft` depends on model size and tokens.

Fits L(N, D) = E + A / N^alpha + B / D^beta to runs of several sizes and lengths, where N is the number of
weights and D that of the tokens trained on (Hoffmann et al. 2022, arXiv 2203.15556, section 3.3 and appendix
D.3), and plots it. With C = 6 N D operations, the best N is G (C / 6)^(beta / (alpha + beta)).
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic_settings import CliPositionalArg
from rich.table import Table

from rookery.errors import InvalidInput, RookeryError, SetupError
from rookery.plots.steps import METRICS_FILE, read_metrics
from rookery.remote import PathOrUrl, find_run
from rookery.settings import Settings, fail
from rookery.terminal import SafeConsole

if TYPE_CHECKING:
    import torch

_LEAST_RUNS = 6
"""One more than the fit has parameters."""

_HUBER = 1e-3
"""Where the loss of a residual of log L becomes linear, as in the paper."""

_DECAYED = 0.05
"""A run's last learning rate over its highest. A higher one means that the run was stopped early."""


class ScalingSettings(Settings, env_prefix="SCALING_"):
    """Fit a scaling law to runs of `rookery sft`, and plot it."""

    runs: CliPositionalArg[list[PathOrUrl]]
    """Runs of `rookery sft`, by name or folder: the same examples, several sizes and numbers of steps."""
    out: Path = Path("scaling.png")
    """The plot."""


@dataclass(frozen=True, slots=True)
class SftRun:
    """The end of a run: its weights, the tokens it computed, and the loss of the held-out examples."""

    name: str
    weights: int
    tokens: int
    loss: float

    @property
    def compute(self) -> float:
        """Operations, 6 for each weight and token."""
        return 6.0 * self.weights * self.tokens


@dataclass(frozen=True, slots=True)
class ScalingLaw:
    """L(N, D) = E + A / N^alpha + B / D^beta, with the loss in nats a token."""

    e: float
    a: float
    alpha: float
    b: float
    beta: float

    def loss(self, weights: float, tokens: float) -> float:
        return float(self.e + self.a * weights**-self.alpha + self.b * tokens**-self.beta)

    def best_size(self, compute: float) -> float:
        """The number of weights with the lowest loss after so many operations."""
        g = (self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta))
        return float(g * (compute / 6) ** (self.beta / (self.alpha + self.beta)))


def main() -> int:
    """Fits and plots, and returns the exit status."""
    try:
        run(ScalingSettings.parse(sys.argv[1:], prog="python -m bench.scaling"))
    except RookeryError as error:
        return fail(error)
    return 0


def run(settings: ScalingSettings) -> None:
    """Prints the fit beside each run, and writes the plot. Raises `NotFound` if a folder has no run;
    `InvalidInput` if a run has not reached its end, or the loss does not fall with size and tokens;
    `SetupError` if there are too few runs, or all are of one size or length."""
    folders = dict.fromkeys(find_run(run).resolve() for run in settings.runs)
    runs = sorted(map(read_run, folders), key=lambda run: (run.weights, run.tokens))
    sizes, lengths = len({run.weights for run in runs}), len({run.tokens for run in runs})
    if len(runs) < _LEAST_RUNS or sizes < 2 or lengths < 2:
        raise SetupError(
            f"{len(runs)} runs of {sizes} sizes and {lengths} lengths: "
            f"the fit needs at least {_LEAST_RUNS} runs, of several sizes and lengths"
        )
    law = fit(runs)
    console = SafeConsole()
    headers = ("run", "weights", "tokens", "loss", "fit", "fit to the others")
    table = Table(*headers)
    for k, measured in enumerate(runs):
        others = fit(runs[:k] + runs[k + 1 :], near=law).loss(measured.weights, measured.tokens)
        numbers = (measured.loss, law.loss(measured.weights, measured.tokens), others)
        table.add_row(
            measured.name, f"{measured.weights:,}", f"{measured.tokens:,}", *(f"{x:.4f}" for x in numbers)
        )
    console.print(table)
    console.print(
        f"loss = {law.e:.3f} + {law.a:.3g} / weights^{law.alpha:.3f} + {law.b:.3g} / tokens^{law.beta:.3f}"
    )
    largest = max(measured.compute for measured in runs)
    for times in (1, 10):
        size = law.best_size(times * largest)
        tokens = times * largest / (6 * size)
        lowest = law.loss(size, tokens)
        best = f"{size:,.0f} weights and {tokens:,.0f} tokens"
        console.print(f"{times * largest:.1e} operations: lowest loss {lowest:.3f}, with {best}")
    _plot(runs, law, settings.out)
    console.print(f"plot: {settings.out}")


def read_run(folder: Path) -> SftRun:
    """Reads the end of a run. Raises `NotFound` if it has no metrics.jsonl; `InvalidInput` if it was stopped
    before its end, or has no held-out examples or no model of one file."""
    from safetensors import safe_open

    rows = read_metrics(folder / METRICS_FILE)
    if not rows or any(not {"lr", "tokens"} <= row.keys() for row in rows):
        raise InvalidInput(f"{folder / METRICS_FILE} is not that of `rookery sft`: it has no lr or tokens")
    if "eval_loss" not in rows[-1]:
        raise InvalidInput(f"{folder}: the last step has no eval_loss; give `rookery sft` an --eval-data")
    if rows[-1]["lr"] > _DECAYED * (highest := max(row["lr"] for row in rows)):
        raise InvalidInput(
            f"{folder} was stopped early: its last learning rate, {rows[-1]['lr']:.1e}, "
            f"is more than {_DECAYED:.0%} of its highest, {highest:.1e}"
        )
    if not (model := folder / "model" / "model.safetensors").is_file():
        raise InvalidInput(f"{folder}: there is no {model}; a scaling run trains all weights, into one file")
    with safe_open(model, framework="pt") as weights:
        count = sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return SftRun(folder.name, count, int(sum(row["tokens"] for row in rows)), rows[-1]["eval_loss"])


def fit(runs: Sequence[SftRun], *, near: ScalingLaw | None = None) -> ScalingLaw:
    """Returns the law with the smallest Huber loss of log L, from several starting points or from `near`.
    Raises `InvalidInput` if the loss does not fall with size and tokens."""
    import torch

    n, d, losses = (
        torch.tensor([math.log(x) for x in column], dtype=torch.float64)
        for column in zip(
            *((measured.weights, measured.tokens, measured.loss) for measured in runs), strict=True
        )
    )
    starts = []
    for e, exponent, share in product((0.5, 0.8), (0.3, 0.6), (0.2, 0.5)):
        # E is this part of the lowest loss; the size has this share of the rest, the tokens what remains.
        log_rest = math.log((1 - e) * math.exp(float(losses.mean())))
        logs = (
            math.log(share) + log_rest + exponent * float(n.mean()),
            math.log(1 - share) + log_rest + exponent * float(d.mean()),
        )
        starts.append((float(losses.min()) + math.log(e), logs[0], exponent, logs[1], exponent))
    if near:
        starts = [(math.log(near.e), math.log(near.a), near.alpha, math.log(near.b), near.beta)]
    minima = [_minimum(torch.tensor(start, dtype=torch.float64), n, d, losses) for start in starts]
    best, _ = min(minima, key=lambda minimum: minimum[1])
    log_e, log_a, alpha, log_b, beta = best.tolist()
    if not min(alpha, beta) > 0:
        raise InvalidInput(
            f"the loss does not fall with size and tokens: the fit has alpha {alpha:.3g} and beta {beta:.3g}"
        )
    return ScalingLaw(math.exp(log_e), math.exp(log_a), alpha, math.exp(log_b), beta)


def _minimum(
    start: "torch.Tensor", n: "torch.Tensor", d: "torch.Tensor", losses: "torch.Tensor"
) -> tuple["torch.Tensor", float]:
    """The point (log E, log A, alpha, log B, beta) that L-BFGS finds from `start`, and its objective."""
    import torch

    point = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [point], max_iter=1000, tolerance_grad=1e-10, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def objective() -> "torch.Tensor":
        optimizer.zero_grad()
        e, a, alpha, b, beta = point
        predicted = torch.logsumexp(torch.stack([e.expand_as(n), a - alpha * n, b - beta * d]), dim=0)
        loss = torch.nn.functional.huber_loss(predicted, losses, delta=_HUBER, reduction="sum")
        loss.backward()
        return loss

    optimizer.step(objective)
    return point.detach(), objective().item()


def _plot(runs: Sequence[SftRun], law: ScalingLaw, out: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained", dpi=120)
    axes = figure.subplots()
    for size in sorted({measured.weights for measured in runs}):
        same_size = [measured for measured in runs if measured.weights == size]
        points = axes.plot(
            [measured.compute for measured in same_size], [measured.loss for measured in same_size], "o"
        )
        first, last = math.log(same_size[0].tokens / 2), math.log(same_size[-1].tokens * 8)
        tokens = [math.exp(first + (last - first) * k / 50) for k in range(51)]
        axes.plot(
            [6 * size * t for t in tokens],
            [law.loss(size, t) for t in tokens],
            color=points[0].get_color(),
            label=f"{size / 1e6:.1f} million weights",
        )
    axes.set_xscale("log")
    axes.set_xlabel("operations (6 x weights x tokens)")
    axes.set_ylabel("loss of held-out examples, nats a token")
    axes.legend()
    axes.grid(alpha=0.3)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


if __name__ == "__main__":
    sys.exit(main())

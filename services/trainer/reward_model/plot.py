"""`calibration.png`: how often the model is right against how sure it is, and its accuracy by gap."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from services.trainer.reward_model.report import Report, Share

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOUR, _GREY = "#2563a8", "#5b6470"


def draw(report: Report) -> bytes:
    """The picture, as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), layout="constrained", dpi=120)
    reliability, by_gap = figure.subplots(1, 2)
    _reliability(reliability, report)
    _bars(by_gap, report.by_gap)
    by_gap.set_xlabel("gap in win probability")
    by_gap.set_title(f"accuracy {report.accuracy:.3f} on {report.pairs} held-out pairs", loc="left")
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


def _reliability(axes: "Axes", report: Report) -> None:
    most = max(share.pairs for share in report.reliability)
    axes.plot([0.5, 1.0], [0.5, 1.0], color=_GREY, linestyle="--", linewidth=1)
    axes.scatter(
        [share.sureness for share in report.reliability],
        [share.accuracy for share in report.reliability],
        s=[20 + 180 * share.pairs / most for share in report.reliability],
        color=_COLOUR,
        alpha=0.8,
    )
    axes.set_xlabel("the model's probability of the answer it prefers")
    axes.set_ylabel("how often it is right")
    axes.set_title(f"calibration error {report.calibration_error:.3f}", loc="left")


def _bars(axes: "Axes", shares: Sequence[Share]) -> None:
    bars = axes.bar([share.name for share in shares], [share.accuracy for share in shares], color=_COLOUR)
    axes.bar_label(bars, [str(share.pairs) for share in shares], fontsize=8)
    axes.axhline(0.5, color=_GREY, linestyle="--", linewidth=1)
    axes.set_ylim(0.0, 1.08)

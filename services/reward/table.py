"""Prints a verdict as a table in the terminal."""

from rich.console import Console
from rich.table import Table

from rookery.trace import Evaluation, Move, Verdict


def show(verdict: Verdict, console: Console | None = None) -> None:
    """Prints the table of `verdict`."""
    (console or Console()).print(verdict_table(verdict))


def verdict_table(verdict: Verdict) -> Table:
    """The table of `verdict`: one row per field, without those that are None."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    rows = {
        "reward": f"{verdict.reward:+.4f}",
        "outcome": verdict.outcome.value,
        "move": _move(verdict.move, verdict.eval_after, verdict.win_after),
        "best": _move(verdict.best, verdict.eval_before, verdict.win_before),
        "regret": None if verdict.regret is None else f"{verdict.regret:.4f}",
        "engine": f"{verdict.engine.id}, {verdict.engine.nodes} nodes" if verdict.engine else None,
        "version": verdict.reward_version,
    }
    for name, value in rows.items():
        if value is not None:
            table.add_row(name, value)
    return table


def _move(move: Move | None, evaluation: Evaluation | None, win: float | None) -> str | None:
    if move is None or evaluation is None or win is None:
        return None
    score = f"mate {evaluation.mate}" if evaluation.cp is None else f"{evaluation.cp / 100:+.2f}"
    return f"{move.san} ({move.uci})  {score}  win {win:.1%}"

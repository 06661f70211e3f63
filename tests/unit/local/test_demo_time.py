"""How much a demo evaluates in the time that is left."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from launcher import demo
from launcher.settings import DemoSettings
from rookery.trace import Adapter, PolicyVersion

VERSIONS = tuple(Adapter(PolicyVersion(n, f"{n:064}"), f"policy-v{n:06}", "base") for n in (0, 60))


@pytest.mark.parametrize(
    ("seconds_each", "whole_model", "calls"),
    [
        # Positions of the first version, the same and more of both; games.
        (0.01, False, ["evaluate 1 200", "match 10", "match 30", "evaluate 2 1000"]),
        (0.1, False, ["evaluate 1 200", "match 10", "match 18", "evaluate 2 520"]),
        (9.0, False, ["evaluate 1 200", "match 10", "evaluate 2 200"]),
        (0.2, True, ["evaluate 1 200", "evaluate 1 314", "evaluate 1 314", "evaluate 2 314"]),
        (0.01, True, ["evaluate 1 200", "evaluate 1 1000", "evaluate 1 1000", "evaluate 2 1000"]),
    ],
)
def test_a_slow_machine_evaluates_on_less(
    monkeypatch: pytest.MonkeyPatch, seconds_each: float, whole_model: bool, calls: list[str]
) -> None:
    clock, made = SimpleNamespace(now=1000.0), []

    def arena(command: str, *players: str, flags: dict[str, int]) -> None:
        size = flags["count"] if command == "evaluate" else flags["pairs"]
        made.append(f"{command} {len(players)} {size}" if command == "evaluate" else f"{command} {size}")
        clock.now += seconds_each * size

    monkeypatch.setattr(demo, "arena", arena)
    monkeypatch.setattr(demo, "_load", lambda *_: None)
    monkeypatch.setattr(demo, "first_and_last", lambda *_: VERSIONS)
    monkeypatch.setattr(demo.time, "monotonic", lambda: clock.now)
    plan = SimpleNamespace(
        redis_url="", run_dir=Path("runs/d"), reward_target="", serves_whole_models=whole_model, url=str
    )
    settings = DemoSettings(run="d", max_tokens=9, style="mover-twice")
    console = Console(record=True, quiet=False, width=200)
    deadline = clock.now + 21 + 0.4 * 162
    demo.evaluate_versions(settings, plan, Path("h.jsonl"), console, deadline=deadline)  # type: ignore[arg-type]
    assert made == calls
    said = console.export_text()
    assert ("so that all ends in about 8 minutes (--minutes)" in said) == (seconds_each > 0.05)
    assert ("openings" in said) == (seconds_each > 0.05 and not whole_model)

"""`--compile` changes how a loss is computed, and not the loss."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

from rookery.config.finetune import SftSettings
from services.trainer.finetune import sft
from services.trainer.tiny import build_tiny

CHATS = [(f"a{n} b{n}", "c1 d2 e3"[: 2 + 3 * (n % 3)]) for n in range(1, 9)]
"""Of several lengths, so that a step's shapes differ from the last one's."""


_CPP = [pytest.mark.nightly, pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")]


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=_CPP)])
@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
def test_compiled_steps_have_the_numbers_of_plain_ones(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In `make test` with graphs and gradients of compiled code, without its C++, which takes a minute."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    model = build_tiny(tmp_path / "model", layers=1, hidden_size=32, intermediate_size=32)
    lines = [
        {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]}
        for asked, said in CHATS
    ]
    data = tmp_path / "chats.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    losses = {}
    for compiled in (False, True):
        out = tmp_path / str(compiled)
        settings = SftSettings(
            model=model, data=data, out=out, steps=2, batch_size=4, device="cpu", threads=1, precision="fp32",
            warmup_steps=1, compile=compiled,
        )  # fmt: skip
        sft.run(settings)
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        losses[compiled] = [row["loss"] for row in rows]
    assert losses[True] == pytest.approx(losses[False], rel=1e-5)
    assert losses[True][-1] < losses[True][0]

"""The guide tells the truth: its commands parse, its table is computed, its reward earns what it shows."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.capacity import CapacitySettings, plan
from launcher.plan import HOST, default_lines, make_plan
from launcher.settings import UpSettings
from rookery.commands import BY_NAME, load
from rookery.processes.ports import Ports
from tests import gpus
from tests.conftest import ROOT
from tests.hub import write_snapshot

TEXT = (ROOT / "docs" / "guide.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
LINES = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines()]
COMMANDS = [shlex.split(line, comments=True) for line in LINES if "rookery " in line]
"""With the variables before them. The rest is curl and the converter to GGUF."""

QWEN3 = {"model_type": "qwen3", "vocab_size": 151936, "head_dim": 128, "num_key_value_heads": 8}
SIZES = {
    "Qwen3-0.6B": (1024, 3072, 28, 16),
    "Qwen3-1.7B": (2048, 6144, 28, 16),
    "Qwen3-4B": (2560, 9728, 36, 32),
}
"""Of each model of the table: its width, that of the MLP, its layers and heads."""


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_parses(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = words[words.index("rookery") + 1 :]
    name = next(name for name in (" ".join(rest[:2]), rest[0]) if name in BY_NAME)
    settings = load(BY_NAME[name].settings).parse(rest[len(name.split()) :], prog=name)
    if isinstance(settings, UpSettings) and settings.preset:
        monkeypatch.chdir(tmp_path)
        Path("games.pgn").touch()
        with Ports(HOST) as ports:
            assert make_plan(settings.model_copy(update={"run": "r"}), ports).commands


def snapshots(cache: Path) -> dict[str, Path]:
    """The models of the table in a cache of the hub, without weights."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    return {
        model: write_snapshot(
            cache,
            f"Qwen/{model}",
            QWEN3 | {"tie_word_embeddings": True} | dict(zip(names, size, strict=True)),
        )
        for model, size in SIZES.items()
    }


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # no network
    return snapshots(tmp_path)


@pytest.mark.usefixtures("hub")
def test_the_table_is_what_plan_prints(capsys: pytest.CaptureFixture[str]) -> None:
    [command] = re.findall(r"`rookery plan (--model Qwen/Qwen3-0.6B [^`]*)`", TEXT)
    for model in SIZES:
        plan(CapacitySettings.parse(shlex.split(command.replace("Qwen3-0.6B", model)), prog="plan"))
    printed = re.findall(r"^  (\d+ GiB)  +(.+)$", capsys.readouterr().out, re.MULTILINE)
    cells = [[gpu, *re.split(r"  +", rest)] for gpu, rest in printed]
    table = [
        [cell.strip() for cell in line.split("|")[2:-1]] for line in TEXT.splitlines() if " GiB |" in line
    ]
    assert table == cells


def test_what_up_takes_from_the_model_is_what_the_guide_shows(
    hub: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpus.install(monkeypatch, tmp_path / "no-driver", [])
    template = json.dumps({"chat_template": "{{ '<think>' }}"})
    (hub["Qwen3-0.6B"] / "tokenizer_config.json").write_text(template)
    requested = UpSettings.parse(["--model", "Qwen/Qwen3-0.6B"], prog="up")
    with Ports(HOST) as ports:
        made = make_plan(
            requested.model_copy(update={"run": "r", "style": "fen-legal-san", "max_tokens": 1024}), ports
        )
    shown = TEXT.partition("rookery up --model Qwen/Qwen3-0.6B")[2].split("```\n")[1:3]
    assert default_lines(requested, made) == shown[1].splitlines()


@pytest.mark.stockfish
def test_the_reward_earns_what_is_shown(tmp_path: Path, stockfish_path: str) -> None:
    [code] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "my_rewards.py").write_text(code)
    [(variable, _, *words)] = [words for words in COMMANDS if "score" in words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "REWARD_ENGINE_PATH": stockfish_path}
    environment |= dict([variable.split("=", 1)])
    command = [sys.executable, "-m", "launcher", *words]
    printed = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    shown = TEXT.partition("rookery score")[2].split("```\n")[1:3][1]
    # Another Stockfish has other numbers, but the same opinion.
    for line in ("reward   +0.0500", "outcome  legal", "regret   0.0000"):
        assert line in printed and line in shown
    [version] = re.findall(r"version +(\S+?)/", shown)
    assert version in printed

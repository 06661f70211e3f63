"""`python -m services.trainer.gpt2`: a text and what a model makes of it."""

import json
import shutil
from pathlib import Path

import pytest

from rookery import rookworld
from services.trainer.gpt2.__main__ import main
from services.trainer.gpt2.loader import load_tokenizer
from tests.gpt2 import write_rookworld_model

PROMPT = rookworld.policy_prompt("8/8/R7/7p/P2K2k1/7r/8/8 w - - 0 56", layout="compact")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rookworld_model(tmp_path_factory.mktemp("model"))


def test_completions_are_lines_of_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--model", str(folder), "--prompt", PROMPT, "--count", "3", "--max-tokens", "8", "--seed", "5"]
    assert main(command) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    assert all(line["text"] and line["logprob"] < 0 and line["ended"] is False for line in lines)
    assert len({line["text"] for line in lines}) > 1
    assert main(command) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == lines


def test_the_tokenizer_is_transformers_own(folder: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder)
    assert load_tokenizer(folder).encode(PROMPT).ids == theirs(PROMPT)["input_ids"]
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    assert load_tokenizer(tmp_path).encode(PROMPT).ids == theirs(PROMPT)["input_ids"]


def test_what_is_wrong_is_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(folder / "config.json", tmp_path)
    assert main(["--model", str(tmp_path), "--prompt", PROMPT]) == 2
    assert "neither tokenizer.json nor vocab.json and merges.txt" in capsys.readouterr().err
    assert main(["--model", str(folder), "--prompt", ""]) == 2
    assert "prompt 0 has 0 tokens" in capsys.readouterr().err

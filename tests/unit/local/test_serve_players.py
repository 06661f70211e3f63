"""Which servers the players of a match need, and with what settings. `test_model_players` starts them."""

import json
import shutil
from pathlib import Path

import pytest

from bench.noise_adapter import write_adapter
from launcher import serve_players
from launcher.evaluate import CONTAMINATION_FILE, EvaluateSettings, _search_data
from launcher.serve_players import batches, serve
from rookery.errors import SetupError
from rookery.hub import identity, text_digest

TINY = Path("models/rook-tiny")


def test_no_data_leaves_no_contamination_of_other_players(tmp_path: Path) -> None:
    (tmp_path / CONTAMINATION_FILE).write_text("{}")
    _search_data(EvaluateSettings(players=("random",), out=tmp_path), {})
    assert not list(tmp_path.iterdir())


def write_version(run: Path, number: int, *, whole: bool = False, rank: int = 8) -> None:
    folder = run / "adapters" / f"policy-v{number:06d}"
    if whole:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    else:
        write_adapter(folder, TINY, version=number, rank=rank)
    state = {"sha256": f"{number:064d}", "fingerprint": {"model": identity(str(TINY))}}
    (folder / "state.json").write_text(json.dumps(state))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    for run, numbers in {"lora": (0, 9, 10), "other": (9,)}.items():
        for number in numbers:
            write_version(folder / run, number, rank=12 if run == "other" else 8)
    for number in (0, 1):
        write_version(folder / "whole", number, whole=True)
    (folder / "lora" / "settings.json").write_text(
        json.dumps({"task": "move", "style": "fen", "max_tokens": 99})
    )
    (folder / "whole" / "settings.json").write_text(json.dumps({"task": "rookworld", "max_tokens": 144}))
    (folder / "empty").mkdir()
    (folder / "lora" / "adapters" / "policy-v000011.bad").mkdir()
    return folder


@pytest.fixture
def runs(written: Path, tmp_path: Path) -> Path:
    """`lora` and `other` with adapters, `whole` with all weights, `empty` without a version."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_player_may_be_below_the_home(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(runs))
    (runs / "m").symlink_to(TINY.resolve())
    (group,) = serve_players._groups(["run:~/lora@9", "model:~/m"])
    assert [player.options["name"] for player in group] == ["lora@9", "m"]


def test_adapters_of_one_base_share_a_server_and_whole_models_do_not(runs: Path) -> None:
    lora = [f"run:{runs}/lora@0", f"model:{TINY}", f"run:{runs}/lora,name=last", f"run:{runs}/other"]
    whole = [f"run:{runs}/whole@0", f"run:{runs}/whole@1", f"run:{runs}/whole,temperature=1,name=hot"]
    mixed = [lora[0], whole[0], "random", *lora[1:], *whole[1:], "stockfish,nodes=1"]
    assert batches(mixed) == [["random", "stockfish,nodes=1"], lora, whole[:1], whole[1:]]
    assert batches(["random"]) == [["random"]]
    assert batches([]) == []


def flags(runs: Path, *specs: str, device: str = "cpu", share: float = 0.9) -> dict[str, str]:
    (group,) = serve_players._groups(specs)
    command = serve_players._command(group, port=1, device=device, share=share, log=runs / "log")
    return {flag: value for flag, _, value in (word.partition("=") for word in command.argv[5:])}


def test_the_server_has_room_for_the_versions(runs: Path) -> None:
    made = flags(runs, f"run:{runs}/lora@9", f"run:{runs}/lora", f"run:{runs}/other")
    assert made == {
        "--model": str(TINY.resolve()),
        "--host": "127.0.0.1",
        "--port": "1",
        "--device": "cpu",
        "--adapter-root": str(runs),
        "--max-loras": "4",
        "--max-lora-rank": "16",
        "--no-follow": "",
    }


def test_a_model_alone_is_served_without_lora(runs: Path) -> None:
    made = flags(runs, f"model:{TINY}", device="1", share=0.45)
    assert "--full-weights" in made and "--max-loras" not in made
    assert made["--gpu-memory"] == "0.45"
    assert "--full-weights" in flags(runs, f"run:{runs}/whole")


def resolved(spec: str) -> list[str]:
    ((player,),) = serve_players._groups([spec])
    return player.at("http://h:1", "m", "cpu").split(",")


def test_thinking_is_switched_by_player_and_kept_by_runs(runs: Path) -> None:
    on, off = f"model:{TINY},thinking=on,name=on", f"model:{TINY},thinking=off,name=off"
    assert batches([on, off, f"model:{TINY}"]) == [[on, off, f"model:{TINY}"]]
    assert "thinking=on" in resolved(on) and "thinking=off" in resolved(off)
    settings = {"task": "move", "thinking": None, "set": ["trainer.lr=1e-4", "inference.thinking=false"]}
    for written in (settings, {"task": "move", "thinking": False}):
        (runs / "other" / "settings.json").write_text(json.dumps(written))
        assert "thinking=off" in resolved(f"run:{runs}/other")
    assert "thinking=on" in resolved(f"run:{runs}/other,thinking=on")
    with pytest.raises(SetupError, match="thinking=maybe: choose on or off"):
        batches([f"model:{TINY},thinking=maybe"])


def test_what_changes_answers_changes_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    shutil.copytree(TINY, model)

    def source(device: str) -> str:
        ((player,),) = serve_players._groups([f"model:{model}"])
        return player.at("http://h:1", "m", device).split(",")[2]

    cpu, gpu = source("cpu"), source("0")
    assert (cpu, gpu) == (source("auto"), source("1"))
    (model / "chat_template.jinja").write_text("{{ messages }}")
    sources = {cpu, gpu, source("cpu")}
    assert len(sources) == 3
    monkeypatch.setenv("INFERENCE_THINKING", "false")
    sources.add(source("cpu"))
    monkeypatch.setenv("INFERENCE_THINKING", "true")
    sources.add(source("cpu"))
    monkeypatch.delenv("INFERENCE_THINKING")
    monkeypatch.setenv("INFERENCE_SAMPLING", "neutral")
    sources.add(source("cpu"))
    monkeypatch.delenv("INFERENCE_SAMPLING")
    (tmp_path / "rookery.toml").write_text("[inference]\nmax_model_len = 100")
    monkeypatch.setenv("ROOKERY_CONFIG", str(tmp_path / "rookery.toml"))
    sources.add(source("cpu"))
    assert len(sources) == 7


def test_a_run_decides_what_the_spec_does_not(runs: Path) -> None:
    assert resolved(f"run:{runs}/lora,temperature=1,style=pgn") == [
        "http://h:1#m",
        "name=lora@10",
        f"source=run:{runs}/lora@10:{'0' * 12}:{text_digest(TINY)[:12]}:cpu",
        "style=pgn",
        "max-tokens=99",
        "temperature=1",
    ]
    assert {"style=rookworld", "max-tokens=144", "name=me"} <= set(resolved(f"run:{runs}/whole@1,name=me"))
    model = resolved(f"model:{TINY}")
    assert model[:2] == ["http://h:1#m", "name=rook-tiny"]
    assert model[2].startswith(f"source=model:{TINY}:")


def test_a_fine_tuned_model_is_called_after_its_run(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(TINY, tmp_path / name / "model")
    one, two = (f"model:{tmp_path}/{name}/model" for name in ("one", "two"))
    assert "name=one" in resolved(one)
    assert batches([one, two]) == [[one], [two]]
    with pytest.raises(
        SetupError, match=r"players .*/one/model' and .*/two/model,name=one' have the same name, 'one'"
    ):
        batches([one, f"{two},name=one"])


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("run:{runs}/lora@7", "no version 7 in .*: it has 0, 9, 10"),
        ("run:{runs}/lora@last", "no run '/.*/lora@last': .*; a version is a number"),
        ("run:{runs}/empty", "has no version: there is nothing in"),
        ("run:{runs}/nowhere", "no run '/.*/nowhere'"),
        ("run:{runs}/damaged", "state.json"),
        ("model:{runs}/empty", "no model in"),
    ],
)
def test_what_cannot_be_served_is_quoted(runs: Path, spec: str, why: str) -> None:
    write_version(runs / "damaged", 1)
    (runs / "damaged/adapters/policy-v000001/state.json").write_text("{}")
    spec = spec.format(runs=runs)
    with pytest.raises(SetupError, match=why) as caught:
        batches([spec])
    assert str(caught.value).startswith(f"player {spec!r}: ")


def test_without_a_model_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_players, "running", None)
    with serve(["random", "first-legal"]) as specs:
        assert specs == ["random", "first-legal"]


def test_a_server_that_does_not_start_is_quoted(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_MAX_NUM_SEQS", "none")
    with (
        pytest.raises(SetupError, match=r"the inference server ended: .*max_num_seqs.*'none'.*log: "),
        serve([f"model:{TINY}"], device="cpu", logs=runs / "logs"),
    ):
        pass

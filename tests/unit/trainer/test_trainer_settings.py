"""Settings of the trainer: an objective's own defaults, and what nothing reads is refused or not taken."""

import tomllib
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.config.finetune import DpoSettings, FinetuneSettings, RewardModelSettings, SftSettings
from rookery.config.objective import Baseline, KlKind, KlSchedule, LossWeights, ObjectiveName
from rookery.config.trainer import AutobatchSettings, TrainerSettings
from rookery.errors import SetupError
from rookery.settings import CONFIG_VARIABLE, read_preset
from services.trainer.versions import commits


def parse(flags: str) -> TrainerSettings:
    return TrainerSettings.parse(f"--model m --run-dir r {flags}".split(), prog="trainer")


def test_an_objective_brings_its_defaults_and_a_flag_wins() -> None:
    plain = parse("")
    assert (plain.objective, plain.normalise, plain.loss_weights, plain.kl) == ("grpo", True, "token", "none")
    dr = parse("--objective dr-grpo")
    assert (dr.normalise, dr.loss_weights) == (False, "constant")
    assert parse("--objective dr-grpo --normalise").normalise
    assert parse("--objective dapo").dynamic_sampling
    assert not parse("--objective dapo --no-dynamic-sampling").dynamic_sampling
    assert parse("--objective gspo --clip-high 0.01").clip_high == 0.01
    assert parse("--objective cispo").ratio_cap == 5.0


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--gamma 0.9", "gamma=0.9 has no effect with objective=grpo, only with objective=ppo"),
        ("--ppo-epochs 2", "ppo_epochs=2 has no effect with objective=grpo"),
        ("--no-whiten", "whiten=false has no effect with objective=grpo"),
        ("--objective ppo --no-normalise", "normalise=false has no effect with baseline=none"),
        ("--objective ppo --dynamic-sampling", "dynamic_sampling=true has no effect with baseline=none"),
        ("--ratio-cap 3", "has no effect with objective=grpo, only with objective=cispo or reinforce"),
        ("--objective cispo --clip-low 0.1", "clip_low=0.1 has no effect with objective=cispo"),
        ("--objective reinforce --clip-high 0.1", "clip_high=0.1 has no effect with"),
        (
            "--baseline-decay 0.5",
            "has no effect with baseline=group-mean, only with baseline=ema or adaptive",
        ),
        ("--loss-constant 9", "has no effect with loss_weights=token, only with loss_weights=constant"),
        ("--baseline ema --dynamic-sampling", "dynamic_sampling=true has no effect with baseline=ema"),
        (
            "--dynamic-sampling-limit 2",
            "has no effect with dynamic_sampling=false, only with dynamic_sampling=true",
        ),
        (
            "--kl-coefficient 0.1",
            "has no effect with kl=none, only with kl=k1, k2, k3, policy_reference, reference_policy or",
        ),
        ("--no-normalise --sigma-floor 0.1", "has no effect with normalise=false, only with normalise=true"),
        (
            "--objective ppo --sigma-floor 0.1",
            "has no effect with baseline=none, only with baseline other than none",
        ),
        ("--entropy-rate 0.1", "has no effect with entropy_target=0.0, only with entropy_target other than"),
        ("--kl-schedule smooth", "kl_schedule=smooth has no effect with kl=none"),
        ("--kl k3 --kl-warmup-steps 9", "has no effect with kl_schedule=fixed, only with kl_schedule=warmup"),
        ("--kl-target 0.1", "has no effect with kl=none and kl_schedule=fixed, only with kl=k1, "),
        ("--kl k3 --kl-report-every 5", "has no effect with kl=k3, only with kl=none"),
        ("--lora-rank 0 --lora-alpha 8", "has no effect with lora_rank=0, only with lora_rank other than 0"),
        ("--lora-rank 0 --base-bits 8", "base_bits=8 has no effect with lora_rank=0, only with lora_rank"),
    ],
)
def test_a_flag_that_nothing_reads_is_refused(flags: str, complaint: str) -> None:
    with pytest.raises(SetupError) as refused:
        parse(flags)
    assert complaint in str(refused.value)
    assert "got" not in str(refused.value)


def test_beside_a_server_that_sleeps_nothing_can_be_measured() -> None:
    with pytest.raises(SetupError, match="auto measures while the server has its memory"):
        parse("--sleep-inference --micro-batch-tokens auto")
    assert parse("--sleep-inference --device 0").sleep_inference


@pytest.mark.parametrize(
    "flags", ["--lr inf", "--max-grad-norm inf", "--kl k3 --kl-coefficient inf", "--threads -1"]
)
def test_numbers_are_those_of_something(flags: str) -> None:
    with pytest.raises(SetupError, match=r"got '(inf|-1)'"):
        parse(flags)


def test_so_is_a_variable_and_a_line_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_GAMMA", "0.9")
    with pytest.raises(SetupError, match=r"gamma=0.9 has no effect .* \(TRAINER_GAMMA in the environment\)$"):
        parse("")
    assert parse("--objective ppo").gamma == 0.9
    monkeypatch.delenv("TRAINER_GAMMA")
    (tmp_path / "run.toml").write_text("[trainer]\nratio_cap = 3.0\nwhiten = false\n")
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "run.toml"))
    with pytest.raises(
        SetupError,
        match=r"ratio_cap=3.0 .*whiten=false .* \(\[trainer\] ratio_cap in .*; \[trainer\] whiten in ",
    ):
        parse("")


def test_values_are_compared_as_they_are_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has texts alone."""
    monkeypatch.setenv("TRAINER_LORA_RANK", "0")
    monkeypatch.setenv("TRAINER_DYNAMIC_SAMPLING", "1")
    assert parse("--dynamic-sampling-limit 2").dynamic_sampling_limit == 2
    with pytest.raises(
        SetupError,
        match=r"lora_targets=c_attn has no effect with lora_rank=0, .*TRAINER_LORA_RANK in the env",
    ):
        parse("--lora-targets c_attn")


def test_every_name_of_the_table_is_a_setting() -> None:
    for kind in (TrainerSettings, SftSettings):
        for name, when in kind.conditions.items():
            assert {name, when.setting} <= kind.model_fields.keys()


def test_an_objectives_default_that_nothing_reads_is_not_taken() -> None:
    assert not parse("--objective dapo --baseline ema").dynamic_sampling


@pytest.mark.parametrize("preset", ["rookworld-mini", "rookworld-full", "pychess-ppo"])
@pytest.mark.parametrize("objective", ["gspo", "cispo", "dr-grpo"])
def test_a_presets_numbers_are_for_its_own_objective(preset: str, objective: str) -> None:
    chosen, plain = parse(f"--preset {preset} --objective {objective}"), parse(f"--objective {objective}")
    for name in ("clip_low", "clip_high", "ratio_cap", "baseline", "normalise", "loss_weights", "gamma"):
        assert getattr(chosen, name) == getattr(plain, name), name
    theirs = read_preset(preset)["trainer"]
    assert chosen.lr == theirs["lr"]
    assert chosen.kl == theirs.get("kl", "none")
    same = parse(f"--preset {preset} --objective {theirs['objective']}")
    assert (same.clip_low, same.clip_high) == (theirs["clip_low"], theirs["clip_high"])


def test_a_critic_is_a_baseline_of_its_own_unless_another_is_named() -> None:
    assert parse("--objective ppo").baseline == "none"
    assert parse("--preset rookworld-mini --objective ppo").baseline == "none"
    both = parse("--objective ppo --baseline group-mean --gae-lambda 0.9 --sigma-floor 0.05")
    assert (both.baseline, both.normalise, both.sigma_floor) == ("group-mean", True, 0.05)


def test_a_preset_is_no_more_than_defaults() -> None:
    resolved = parse("--preset rookworld-mini --kl none")
    assert (resolved.kl_coefficient, resolved.kl_schedule) == (0.02, "fixed")
    assert (
        AutobatchSettings.parse(["--preset", "rookworld-mini", "--objective", "gspo"], prog="a").clip_low
        == 0.03
    )


def test_dry_run_says_what_of_a_preset_is_not_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--preset rookworld-mini --objective gspo --kl none --clip-high 0.05 --dry-run")
    said = {
        line.split("  # ")[0].rstrip(): line.partition("  # ")[2]
        for line in capsys.readouterr().out.splitlines()
    }
    assert said["clip_low = 0.03"] == "default of the objective; preset rookworld-mini has 0.2"
    assert said["clip_high = 0.05"] == "flag"
    assert said["# kl_schedule has no effect with kl=none"] == 'preset rookworld-mini has "adaptive"'
    assert said["# gamma has no effect with objective=gspo"] == ""
    assert said["lr = 1e-05"] == "preset rookworld-mini"


@pytest.mark.parametrize(
    "flags", ["", "--preset rookworld-mini --objective dapo", "--preset pychess-ppo --kl k1"]
)
def test_what_is_printed_and_kept_can_be_read_again(
    flags: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = parse(flags)
    with pytest.raises(SystemExit):
        parse(f"{flags} --dry-run")
    resolved.write_resolved(tmp_path)
    printed, kept = capsys.readouterr().out, (tmp_path / "trainer.toml").read_text()
    assert tomllib.loads(printed) == tomllib.loads(kept)
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "trainer.toml"))
    assert parse("") == resolved


@pytest.mark.parametrize("kept", ["", "--objective gspo", "--preset rookworld-mini", "--objective dr-grpo"])
def test_what_a_kept_file_says_by_default_gives_way_to_another_objective(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in (
        "--objective cispo",
        "--objective ppo",
        "--objective gspo --kl k3",
        "--kl none --kl-report-every 3",
    ):
        monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
        parse(f"{kept} --lr 0.5").write_resolved(tmp_path)
        expected = parse(f"{kept} --lr 0.5 {other}")
        monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "trainer.toml"))
        assert parse(other) == expected


def test_what_a_file_chooses_and_nothing_reads_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.toml").write_text("[trainer]\nclip_low = 0.1\n")
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "run.toml"))
    assert parse("--objective gspo").clip_low == 0.1
    with pytest.raises(
        SetupError, match=r"clip_low=0.1 has no effect with objective=cispo.*\(\[trainer\] clip_low in "
    ):
        parse("--objective cispo")


@pytest.mark.parametrize("clip", ["-1", "0.5", "1"])
def test_a_dual_clip_is_more_than_1_or_none(clip: str) -> None:
    assert (parse("").dual_clip, parse("--objective ppo --dual-clip 0").dual_clip) == (3.0, 0.0)
    with pytest.raises(SetupError, match=r"dual.clip"):
        parse(f"--dual-clip {clip}")
    with pytest.raises(SetupError, match=r"dual_clip=4.0 has no effect with objective=cispo"):
        parse("--objective cispo --dual-clip 4")


def test_sft_refuses_what_it_does_not_read() -> None:
    def sft(flags: str) -> SftSettings:
        return SftSettings.parse(f"--model m --data d --out o {flags}".split(), prog="sft")

    with pytest.raises(SetupError, match="eval_every=5 has no effect with no eval_data, only with eval_data"):
        sft("--eval-every 5")
    with pytest.raises(SetupError, match=r"lora_alpha=64 has no effect with lora_rank=0"):
        sft("--lora-alpha 64")
    assert sft("--eval-every 5 --eval-data e --lora-rank 4 --lora-alpha 64").lora_alpha == 64


CHOICES = {
    "--preset": ("rookworld-mini", "pychess-ppo", "tiny-cpu"),
    "--objective": get_args(ObjectiveName),
    "--baseline": get_args(Baseline),
    "--loss-weights": get_args(LossWeights),
    "--kl": get_args(KlKind),
    "--kl-schedule": get_args(KlSchedule),
    "--kl-target": ("0.1",),
    "--clip-high": ("0.03",),
    "--ratio-cap": ("3.0",),
    "--gamma": ("0.9",),
    "--loss-constant": ("99",),
    "--dynamic-sampling": (True, False),
    "--normalise": (True, False),
    "--lora-rank": ("0", "4"),
    "--lora-alpha": ("7",),
    "--keep": ("9",),
}


@settings(max_examples=3 * settings.default.max_examples // 10)
@given(st.fixed_dictionaries({}, optional={name: st.sampled_from(among) for name, among in CHOICES.items()}))
def test_whatever_is_set_is_read_or_refused(chosen: dict[str, str | bool]) -> None:
    flags: list[str] = []
    for name, value in chosen.items():
        flags += [name, value] if isinstance(value, str) else [name if value else f"--no-{name[2:]}"]
    given_ = {name[2:].replace("-", "_") for name in chosen}
    try:
        resolved = parse(" ".join(flags))
    except SetupError as error:
        assert " has no effect with " in str(error) or "keep=3: at least 8 adapters" in str(error)
        return
    assert not given_ & resolved.unread().keys()
    for name in resolved.unread():
        assert getattr(resolved, name) == TrainerSettings.model_fields[name].default


@pytest.mark.parametrize(
    ("older", "name"), [("forward", "policy_reference"), ("reverse", "reference_policy")]
)
def test_older_names_of_divergences_are_accepted(
    older: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = parse(f"--kl {name} --kl-coefficient 0.5").model_dump()
    assert parse(f"--kl {older} --kl-coefficient 0.5").model_dump() == expected
    kept = tmp_path / "kept.toml"
    kept.write_text(f'[trainer]\nkl = "{older}"\nkl_coefficient = 0.5\n')
    with monkeypatch.context() as patch:
        patch.setenv(CONFIG_VARIABLE, str(kept))
        assert parse("").model_dump() == expected
    monkeypatch.setenv("TRAINER_KL", older)
    assert parse("--kl-coefficient 0.5").model_dump() == expected


REFUSED = {
    "model", "lora_rank", "lora_alpha", "lora_targets", "batch_groups", "adam_bits", "critic", "base",
}  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        ("--lora-rank 8", "lora_rank was '16', is '8'"),
        ("--lora-alpha 8", "lora_alpha was '32', is '8'"),
        ("--lora-targets q_proj", "lora_targets was"),
        ("--batch-groups 9", "batch_groups was '32', is '9'"),
        ("--adam-bits 8", "adam_bits was '32', is '8'"),
        ("--objective ppo", "critic was None, is 'value head'"),
        ("--base-bits 8", "base was None, is 'int8'"),
        ("--objective gspo --kl k3 --kl-schedule smooth --lr 0.1 --baseline ema --seed 4", None),
        ("--device 0 --threads 1 --micro-batch-tokens 64 --row-tokens 64 --max-grad-norm 9", None),
        ("--precision bf16", None),
    ],
)
def test_what_a_run_that_goes_on_may_be_told(flags: str, refused: str | None, tmp_path: Path) -> None:
    """README, Settings: the list of what is refused."""
    before, now = parse(""), parse(flags)
    files = {"adapter_model.safetensors": b"", "optimizer.safetensors": b""}
    commits.write(tmp_path, number=0, files=files, ledger=(), fingerprint=before.fingerprint())
    assert (
        before.fingerprint().keys() | parse("--objective ppo --base-bits 8").fingerprint().keys() == REFUSED
    )
    if refused is None:
        assert commits.to_resume(tmp_path, fingerprint=now.fingerprint()) is not None
        return
    with pytest.raises(SetupError, match=refused):
        commits.to_resume(tmp_path, fingerprint=now.fingerprint())


@pytest.mark.parametrize(
    ("kind", "flags", "lr"),
    [
        (SftSettings, "", 2e-5),
        (SftSettings, "--lora-rank 0", 2e-5),
        (SftSettings, "--lora-rank 8", 2e-4),
        (SftSettings, "--lora-rank 8 --lr 3e-4", 3e-4),
        (SftSettings, "--preset tiny-cpu", 2e-3),
        (RewardModelSettings, "", 2e-5),
        (DpoSettings, "", 2e-4),
    ],
)
def test_the_learning_rate_is_that_of_what_is_trained(
    kind: type[FinetuneSettings], flags: str, lr: float
) -> None:
    given = ["--model", "m", "--data", "d", "--out", "o", *flags.split()]
    assert kind.parse(given, prog="x").lr == lr


@pytest.mark.parametrize(
    ("flags", "tokens"), [("", 0), ("--sharding fsdp2", 8192), ("--sleep-inference", 8192)]
)
def test_a_pass_is_measured_where_that_is_possible(flags: str, tokens: int) -> None:
    assert parse(flags).micro_batch_tokens == tokens


def test_a_run_that_noted_its_precision_goes_on_in_any(tmp_path: Path) -> None:
    fingerprint = parse("--precision bf16").fingerprint()
    files = {"adapter_model.safetensors": b"", "optimizer.safetensors": b""}
    commits.write(tmp_path, number=0, files=files, ledger=(), fingerprint=fingerprint | {"base": "fp32"})
    assert commits.to_resume(tmp_path, fingerprint=fingerprint) is not None
    with pytest.raises(SetupError, match="base was None, is 'int8'"):
        commits.to_resume(tmp_path, fingerprint=parse("--base-bits 8").fingerprint())

"""vLLM's command line and environment, and what a wrong set-up is told."""

import json
import os
import sys
import tempfile
from itertools import takewhile
from pathlib import Path

import pytest

from rookery.config.inference import ServerSettings
from rookery.errors import SetupError
from rookery.hub import BOS, PLAIN_TEMPLATE, with_system_role
from services.inference.server import vllm_command
from services.inference.server.adapter import TARGET_MODULES
from tests import gpus
from tests.certificates import Authority
from tests.chat_models import MISTRAL_TEMPLATE
from tests.hub import write_snapshot


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 384}))
    return folder


def settings(*flags: str) -> ServerSettings:
    return ServerSettings.parse(list(flags), prog="server")


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_on_cpu_prompts_stay_whole_and_numbers_exact(model: Path) -> None:
    command = vllm_command.command(settings("--model", str(model)), port=8123, cpu=True)

    assert option(command, "--dtype") == "float32"
    assert option(command, "--logprobs-mode") == "processed_logprobs"
    assert option(command, "--max-model-len") == "384"
    longer = vllm_command.command(
        settings("--model", str(model), "--max-model-len", "999"), port=1, cpu=False
    )
    assert option(longer, "--max-model-len") == "384"
    assert option(command, "--port") == "8123"
    assert {"--enforce-eager", "--no-enable-chunked-prefill", "--enable-prefix-caching"} <= set(command)


def test_only_layers_that_adapters_may_have_get_slots(model: Path) -> None:
    command = vllm_command.command(settings("--model", str(model)), port=1, cpu=False)
    values = command[command.index("--lora-target-modules") + 1 :]
    assert set(takewhile(lambda word: not word.startswith("--"), values)) == TARGET_MODULES
    whole = settings("--model", str(model), "--full-weights")
    assert "--lora-target-modules" not in vllm_command.command(whole, port=1, cpu=False)


@pytest.mark.parametrize(
    ("capability", "flags", "dtype"),
    [
        ("8.0", [], "bfloat16"),
        ("12.0", [], "bfloat16"),
        ("7.5", [], "float16"),
        ("7.5", ["--dtype", "float32"], "float32"),
        ("[N/A]", [], "auto"),
    ],
)
def test_on_a_gpu_the_type_is_what_the_card_can_compute(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capability: str,
    flags: list[str],
    dtype: str,
) -> None:
    gpus.install(monkeypatch, tmp_path / "driver", ["9.0", capability])
    chosen = settings("--model", str(model), "--device", "1", *flags)
    assert option(vllm_command.command(chosen, port=1, cpu=False), "--dtype") == dtype


def test_on_gpu_the_card_is_the_one_asked_for_within_the_visible_ones(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    chosen = settings("--model", str(model), "--device", "1")
    variables = vllm_command.environment(chosen, {"CUDA_VISIBLE_DEVICES": "5,7"}, cpu=False)

    assert (variables["CUDA_DEVICE_ORDER"], variables["CUDA_VISIBLE_DEVICES"]) == ("PCI_BUS_ID", "7")
    assert "--gpu-memory-utilization" not in vllm_command.command(chosen, port=1, cpu=False)
    half = settings("--model", str(model), "--gpu-memory", "0.45")
    assert option(vllm_command.command(half, port=1, cpu=False), "--gpu-memory-utilization") == "0.45"
    assert "--enforce-eager" not in vllm_command.command(chosen, port=1, cpu=False)


def test_several_gpus_share_the_layers(model: Path) -> None:
    chosen = settings("--model", str(model), "--device", "2,0")
    assert option(vllm_command.command(chosen, port=1, cpu=False), "--tensor-parallel-size") == "2"
    assert vllm_command.environment(chosen, {}, cpu=False)["CUDA_VISIBLE_DEVICES"] == "2,0"
    for wrong in ("0,0", "0,", "0,cpu", "auto,1"):
        with pytest.raises(SetupError, match=wrong):
            settings("--device", wrong)


def test_flags_of_vllm_are_passed_on_as_in_a_shell(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = """--quantization fp8 --speculative-config '{"method": "ngram"}' --dtype=half"""
    monkeypatch.setenv("INFERENCE_VLLM", flags)
    command = vllm_command.command(settings("--model", str(model)), port=1, cpu=False)
    assert command[-5:] == [
        "--quantization", "fp8", "--speculative-config", '{"method": "ngram"}', "--dtype=half",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--max-model-len 4096", "--max-model-len is set by --max-model-len"),
        ("--quantization fp8 --max_model_len=4096", "--max-model-len is set by --max-model-len"),
        ("-tp 2", "--tensor-parallel-size is set by --device 0,1"),
        ("--no-enable-lora", "--no-enable-lora is set by --full-weights"),
        ("--logprobs-mode raw_logits", "--logprobs-mode is not free: what this project promises"),
        ("--config other.yaml", "--config is not free"),
        ("fp8", "'fp8' is not a flag such as --quantization"),
        ("--quantization 'fp8", "No closing quotation"),
    ],
)
def test_flags_that_are_ours_are_refused_by_the_settings_name(flags: str, reason: str) -> None:
    with pytest.raises(SetupError) as refused:
        settings(f"--vllm={flags}")
    assert reason in str(refused.value)


def test_only_a_gpu_can_be_left_to_others(model: Path) -> None:
    chosen = settings("--model", str(model), "--sleep")
    assert "--enable-sleep-mode" in vllm_command.command(chosen, port=1, cpu=False)
    with pytest.raises(SetupError, match="sleep: vLLM cannot sleep on a CPU"):
        vllm_command.command(chosen, port=1, cpu=True)


def test_thinking_is_left_to_the_template_unless_chosen(model: Path) -> None:
    name = "--default-chat-template-kwargs"
    assert name not in vllm_command.command(settings("--model", str(model)), port=1, cpu=True)
    for flag, expected in (("--thinking", True), ("--no-thinking", False)):
        command = vllm_command.command(settings("--model", str(model), flag), port=1, cpu=True)
        assert json.loads(option(command, name)) == {"enable_thinking": expected}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3-thinking", {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0}),
        ("qwen3-non-thinking", {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0}),
        ("neutral", {}),
    ],
)
def test_sampling_defaults_go_by_name(model: Path, name: str, expected: dict[str, float]) -> None:
    command = vllm_command.command(settings("--model", str(model), "--sampling", name), port=1, cpu=True)

    assert option(command, "--generation-config") == "vllm"
    assert json.loads(option(command, "--override-generation-config")) == expected


def test_the_plugin_reads_back_every_setting(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings(
        "--model",
        str(model),
        "--no-follow",
        "--max-loras",
        "6",
        "--max-lora-rank",
        "32",
        "--run",
        "r1",
        "--open-routes",
        "/tokenize,/v1/responses",
        "--token-file",
        str(model / "token"),
    )
    for name, value in vllm_command.environment(chosen, {}, cpu=True).items():
        monkeypatch.setenv(name, value)

    assert ServerSettings() == chosen
    assert os.environ["VLLM_PLUGINS"] == "rookery"
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_nothing_is_compiled_on_a_cpu_unless_users_say_so() -> None:
    chosen, name = settings("--model", "models/rook-tiny"), "TORCH_COMPILE_DISABLE"
    assert vllm_command.environment(chosen, {}, cpu=True)[name] == "1"
    assert vllm_command.environment(chosen, {name: "0"}, cpu=True)[name] == "0"
    assert name not in vllm_command.environment(chosen, {}, cpu=False)


def test_sockets_are_elsewhere_if_the_temporary_folder_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, name = settings("--model", "models/rook-tiny"), "VLLM_RPC_BASE_PATH"
    monkeypatch.setattr(tempfile, "tempdir", "/short")
    assert name not in vllm_command.environment(chosen, {}, cpu=True)
    monkeypatch.setattr(tempfile, "tempdir", "/long" * 20)
    assert vllm_command.environment(chosen, {}, cpu=True)[name] == "/tmp"
    assert vllm_command.environment(chosen, {name: "/mine"}, cpu=True)[name] == "/mine"


def test_a_model_that_is_neither_here_nor_on_the_hub_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="nowhere/at/all"):
        _ = settings("--model", "nowhere/at/all").served_name
    with pytest.raises(SetupError, match=r"it has no config\.json"):
        _ = settings("--model", str(tmp_path)).served_name
    assert settings("--model", "Qwen/Qwen3-4B").served_name == "Qwen/Qwen3-4B"


@pytest.mark.parametrize(
    ("device", "cpu_build", "expected"),
    [("auto", True, True), ("auto", False, False), ("cpu", True, True), ("0", False, False)],
)
def test_the_device_agrees_with_the_build(device: str, cpu_build: bool, expected: bool) -> None:
    assert vllm_command.runs_on_cpu(device, cpu_build=cpu_build) is expected


@pytest.mark.parametrize(("device", "cpu_build"), [("cpu", False), ("0", True)])
def test_a_device_the_build_cannot_use_is_refused(device: str, cpu_build: bool) -> None:
    with pytest.raises(SetupError, match=f"--device {device}.*pip install"):
        vllm_command.runs_on_cpu(device, cpu_build=cpu_build)


def test_a_missing_vllm_is_told_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_command.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(SetupError, match="pip install"):
        vllm_command.vllm_is_cpu_build()


def test_whole_models_need_no_adapters_but_a_directory(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # no network
    command = vllm_command.command(settings("--model", str(model), "--full-weights"), port=1, cpu=True)
    assert option(command, "--worker-extension-cls") == vllm_command.WORKER_EXTENSION
    assert not any("lora" in part for part in command)
    with pytest.raises(SetupError, match=r"no model 'some/model' .*: hf download some/model"):
        vllm_command.command(settings("--model", "some/model", "--full-weights"), port=1, cpu=False)


def test_an_id_is_looked_up_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # no network
    chosen = settings("--model", "some/model")
    with pytest.raises(SetupError, match=r"no model 'some/model' .*: hf download some/model"):
        vllm_command.command(chosen, port=1, cpu=True)
    snapshot = write_snapshot(tmp_path, "some/model", {"n_positions": 320})
    command = vllm_command.command(chosen, port=1, cpu=True)
    assert (option(command, "--max-model-len"), option(command, "--model")) == ("320", "some/model")
    assert settings("--model", "some/model").model_dir == snapshot
    assert "some/model" in chosen.base_names


def test_a_model_that_knows_no_chat_gets_the_plain_template(model: Path) -> None:
    def template() -> str | None:
        command = vllm_command.command(settings("--model", str(model)), port=1, cpu=True)
        return option(command, "--chat-template") if "--chat-template" in command else None

    assert template() == PLAIN_TEMPLATE
    (model / "tokenizer_config.json").write_text("{}")
    assert template() == PLAIN_TEMPLATE
    (model / "tokenizer_config.json").write_text('{"add_bos_token": true}')
    assert template() == BOS + PLAIN_TEMPLATE
    (model / "tokenizer_config.json").write_text('{"chat_template": "x"}')
    assert template() is None
    (model / "tokenizer_config.json").unlink()
    (model / "chat_template.jinja").write_text("x")
    assert template() is None
    (model / "chat_template.jinja").write_text(MISTRAL_TEMPLATE)
    assert template() == with_system_role(MISTRAL_TEMPLATE) != MISTRAL_TEMPLATE


def test_gpt2_says_its_limit_in_its_own_way(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({"n_positions": 320}))
    command = vllm_command.command(settings("--model", str(model)), port=1, cpu=True)
    assert option(command, "--max-model-len") == "320"


def test_neither_pickles_nor_pages_nor_embeddings_nor_adapters_by_name_are_taken(model: Path) -> None:
    chosen = settings("--model", str(model))
    command = vllm_command.command(chosen, port=1, cpu=True)
    variables = vllm_command.environment(chosen, {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}, cpu=True)

    assert option(command, "--load-format") == "safetensors"
    assert option(command, "--tokenizer-mode") == "hf", "the trainer's, also for Mistral's models"
    assert option(command, "--allowed-origins") == "[]"
    assert "--no-enable-prompt-embeds" in command
    assert "--no-trust-remote-code" in command
    assert variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "0"
    assert variables["VLLM_MAX_N_SEQUENCES"] == "1024"
    given = vllm_command.environment(chosen, {"VLLM_MAX_N_SEQUENCES": "2048"}, cpu=True)
    assert given["VLLM_MAX_N_SEQUENCES"] == "2048"


def test_vllm_has_our_certificate(model: Path, tmp_path: Path) -> None:
    signed = Authority(tmp_path).sign("server")
    cert, key, ca = str(signed.cert), str(signed.key), str(signed.ca)
    flags = ["--tls-cert", cert, "--tls-key", key, "--tls-ca", ca]
    command = vllm_command.command(settings("--model", str(model), *flags), port=1, cpu=True)

    assert option(command, "--ssl-certfile") == cert
    assert option(command, "--ssl-keyfile") == key
    assert (option(command, "--ssl-ca-certs"), option(command, "--ssl-cert-reqs")) == (ca, "2")


def test_onednn_keeps_few_kernels_on_a_cpu() -> None:
    chosen, name = settings("--model", "some/model"), "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    assert vllm_command.environment(chosen, {}, cpu=True)[name] == "128"
    assert vllm_command.environment(chosen, {name: "7"}, cpu=True)[name] == "7"
    assert name not in vllm_command.environment(chosen, {}, cpu=False)

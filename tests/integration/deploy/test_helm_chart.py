"""The Helm chart as Helm's own library renders it, against Kubernetes' own schemas; no cluster."""

import base64
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rookery.config.inference import ServerSettings
from rookery.config.trainer import TrainerSettings
from tests.conftest import HELM_TEMPLATE, ROOT, require

pytestmark = pytest.mark.helm

HELM = ROOT / "deploy" / "helm"
EXAMPLES = sorted((HELM / "examples").glob("*.yaml"))
SECRET = "5ecret" * 6
PASSWORD = ("--set", f"redis.password={SECRET}")
ALL = ("--set", "services.arena.enabled=true,services.viewer.enabled=true")
WITHOUT_SCHEMA = {"ScaledObject", "PodMonitor"}
"""Kinds that KEDA and the Prometheus operator add to a cluster."""

EXPORTER = {
    "app.kubernetes.io/name": "rookery",
    "app.kubernetes.io/instance": "r",
    "app.kubernetes.io/component": "exporter",
}

Chart = dict[tuple[str, str], dict[str, Any]]


def helm(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [require("helm"), "run", "--quiet", "--script", HELM_TEMPLATE, "r", str(HELM / "rookery")]
    command += ["--namespace", "chess", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def render(*flags: str | Path) -> Chart:
    """The objects by kind and name, without the release's prefix."""
    done = helm(*map(str, flags))
    assert done.returncode == 0, done.stderr
    found = [document for document in yaml.safe_load_all(done.stdout) if document]
    return {(made["kind"], made["metadata"]["name"].removeprefix("r-")): made for made in found}


def workloads(chart: Chart) -> Chart:
    return {key: made for key, made in chart.items() if key[0] in ("Deployment", "StatefulSet")}


def container(chart: Chart, name: str) -> dict[str, Any]:
    [made] = [made for (_, named), made in workloads(chart).items() if named == name]
    found: dict[str, Any] = made["spec"]["template"]["spec"]["containers"][0]
    return found


def environment(chart: Chart, name: str) -> dict[str, str]:
    return {v["name"]: v["value"] for v in container(chart, name)["env"] if "value" in v}


@pytest.fixture(scope="module")
def chart() -> Chart:
    return render(*PASSWORD)


@pytest.mark.parametrize("example", [None, *EXAMPLES], ids=lambda path: path.stem if path else "defaults")
def test_kubernetes_accepts_every_object(example: Path | None) -> None:
    import kubernetes_validate

    made = render(*PASSWORD, *(("--values", example) if example else ()))
    for (kind, _), found in made.items():
        if kind not in WITHOUT_SCHEMA:
            kubernetes_validate.validate(found, "1.33", strict=True)
    labels = [found["spec"]["template"]["metadata"]["labels"] for found in workloads(made).values()]
    for (kind, name), found in made.items():
        if kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            selector = found["spec"].get("podSelector", found["spec"].get("selector"))
            selector = selector.get("matchLabels", selector)
            assert sum(selector.items() <= pod.items() for pod in labels) == 1, (kind, name)
    claims = {name for kind, name in made if kind == "PersistentVolumeClaim"}
    given = {"my-games", "reward-model"}
    for found in workloads(made).values():
        pod = found["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        volumes |= {c["metadata"]["name"]: {} for c in found["spec"].get("volumeClaimTemplates", [])}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes.keys()
        claimed = {
            v["persistentVolumeClaim"]["claimName"] for v in volumes.values() if "persistentVolumeClaim" in v
        }
        assert {claim.removeprefix("r-") for claim in claimed} <= claims | given


def test_names_of_digits_alone_stay_text(tmp_path: Path) -> None:
    import kubernetes_validate

    file = tmp_path / "values.yaml"
    file.write_text("run: 20261129\nmodel: 4\nimages: { tag: 12345678 }\n")
    texts = "images:\n  pullSecrets: ['1']\nstorageClass: '2'\ngames: '3'\nmetrics: { namespace: '5' }\n"
    (more := tmp_path / "texts.yaml").write_text(texts)
    made = render(*PASSWORD, "--values", file, "--values", more)
    for (kind, _), found in made.items():
        if kind not in WITHOUT_SCHEMA:
            kubernetes_validate.validate(found, "1.33", strict=True)
    assert environment(made, "feed")["ROOKERY_RUN"] == "20261129"
    assert environment(made, "trainer")["TRAINER_MODEL"] == "4"
    assert container(made, "data")["image"] == "rookery-data:12345678"
    file.write_text("images: { tag: 1.10 }\n")
    assert "tag: 1.1 is a number: quote it" in helm(*PASSWORD, "--values", str(file)).stderr


def test_the_services_are_set_as_in_docker_compose(chart: Chart) -> None:
    words = dict(re.findall(r"^([A-Z_]+)=(.*)$", (ROOT / ".env").read_text(), re.M))
    text = re.sub(r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda m: words.get(m[1], m[2] or ""), _compose())
    services = yaml.safe_load(text)["services"]
    own = {"POD_NAME", "ROOKERY_CONFIG", "PROBE_PORT", "MLFLOW_TRACKING_URI", "TRAINER_MLFLOW"}
    own |= {"INFERENCE_ADAPTER_URL", "ROOKERY_REDIS_URL", "STATUS_REDIS_URL"}
    made = render(*PASSWORD, *ALL)
    own |= {"VIEWER_REDIS_URL", "VIEWER_REWARD_URL"}  # the gateway is compose's
    for name in (
        "data",
        "feed",
        "archive",
        "exporter",
        "rollouts",
        "inference",
        "trainer",
        "arena",
        "viewer",
    ):
        composed = {k: str(v) for k, v in services[name]["environment"].items() if v and k not in own}
        rendered = {
            k: re.sub(r"\br-(?=[\w{])", "", v) for k, v in environment(made, name).items() if k not in own
        }
        rendered = {k: v.replace("dns:///inference", "http://inference") for k, v in rendered.items()}
        rendered = {k: v.replace("-{service}", "{service}") for k, v in rendered.items()}
        assert rendered == composed, name
    redis = container(made, "redis")
    assert redis["args"][3:] == services["redis"]["command"][3:]
    script = made["ConfigMap", "toml"]["data"]
    assert script["redis.sh"] == (ROOT / "launcher" / "redis.sh").read_text()
    assert script["run.toml"] == (ROOT / "deploy" / "run.toml").read_text()


def _compose() -> str:
    return (ROOT / "docker-compose.yml").read_text()


def test_there_is_one_trainer_and_its_successor_waits_for_its_end(chart: Chart) -> None:
    for name in ("trainer", "feed", "archive", "exporter"):
        spec = chart["Deployment", name]["spec"]
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"}), name


def test_replicas_are_found_by_dns(chart: Chart) -> None:
    for name in ("inference", "reward", "rollouts"):
        assert chart["Service", name]["spec"]["clusterIP"] == "None"
    for name, variable in (("rollouts", "ROLLOUTS_INFERENCE_URLS"), ("trainer", "TRAINER_INFERENCE_URLS")):
        assert environment(chart, name)[variable] == "dns:///r-inference:8000"
    rollouts = chart["StatefulSet", "rollouts"]["spec"]["template"]["spec"]["containers"][0]
    assert rollouts["args"] == ["--consumer", "$(POD_NAME)"]


def test_rollouts_and_inference_are_scaled_by_how_long_the_trainer_waits() -> None:
    made = render("--values", HELM / "examples" / "gpu-s3.yaml")
    for kind, name in (("StatefulSet", "rollouts"), ("Deployment", "inference")):
        scaled = made["ScaledObject", name]["spec"]
        assert scaled["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": kind, "name": f"r-{name}"}
        [trigger] = scaled["triggers"]
        assert (trigger["type"], trigger["metricType"]) == ("prometheus", "Value")
        rate = 'avg(rate(rookery_rollout_wait_seconds_total{namespace="chess"}[5m]))'
        assert trigger["metadata"]["query"] == rate
        assert "replicas" not in made[kind, name]["spec"], "helm upgrade would undo what KEDA has scaled"
    assert "replicas" not in made["Deployment", "reward"]["spec"]
    hpa = made["HorizontalPodAutoscaler", "reward"]["spec"]
    assert hpa["metrics"][0]["resource"]["name"] == "cpu"


@pytest.mark.parametrize(
    ("flags", "url", "store", "mode", "server_volume"),
    [
        (PASSWORD, "http://r-trainer:8003/adapters", None, "ReadWriteOnce", "emptyDir"),
        (("--values", HELM / "examples" / "gpu-s3.yaml"), *2 * ["s3://chess/qwen/adapters"],
         "ReadWriteOnce", "emptyDir"),
        (("--values", HELM / "examples" / "volume.yaml"), None, None, "ReadWriteMany",
         "persistentVolumeClaim"),
    ],
    ids=["http", "store", "volume"],
)  # fmt: skip
def test_adapters_reach_the_servers(
    flags: tuple[str | Path, ...], url: str | None, store: str | None, mode: str, server_volume: str
) -> None:
    made = render(*flags)
    assert environment(made, "inference").get("INFERENCE_ADAPTER_URL") == url
    assert environment(made, "trainer").get("TRAINER_ADAPTER_STORE") == store
    assert made["PersistentVolumeClaim", "runs"]["spec"]["accessModes"] == [mode]
    pod = made["Deployment", "inference"]["spec"]["template"]["spec"]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "runs-read"]
    assert server_volume in volume
    assert "adapter_url" in ServerSettings.model_fields
    assert "adapter_store" in TrainerSettings.model_fields


def test_the_viewer_reads_the_archive_and_nothing_more() -> None:
    claim = {"claimName": "r-archive", "readOnly": True}
    for flags, place, volume in (
        ((*PASSWORD, *ALL), "/srv/rookery/archive", {"persistentVolumeClaim": claim}),
        (("--values", HELM / "examples" / "gpu-s3.yaml"), "s3://chess/qwen/archive", {"emptyDir": {}}),
    ):
        made = render(*flags)
        assert environment(made, "viewer")["VIEWER_ARCHIVE"] == place
        pod = made["Deployment", "viewer"]["spec"]["template"]["spec"]
        assert {"name": "archive-read", **volume} in pod["volumes"]
        mounts = {mount["name"]: mount.get("readOnly") for mount in container(made, "viewer")["volumeMounts"]}
        assert mounts["archive-read"] is True
        [rule] = made["NetworkPolicy", "viewer"]["spec"]["ingress"]
        assert rule["ports"] == [{"port": "http"}], "for Prometheus and the exporter alone"


def test_every_metric_has_the_label_of_its_run() -> None:
    made = render(*PASSWORD, "--set", "run=mine,metrics.podMonitor=true")
    [endpoint] = made["PodMonitor", "r"]["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "run", "replacement": "mine"}]


def test_gpus_shared_memory_and_secrets_go_to_those_who_need_them() -> None:
    made = render("--values", HELM / "examples" / "gpu-s3.yaml")
    for name in ("inference", "trainer"):
        found = container(made, name)
        assert found["image"] == f"registry.example.com/rookery-{name}-gpu:1.2.3"
        assert found["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": 1}
        assert found["envFrom"] == [{"secretRef": {"name": "huggingface"}}]
        assert {"name": "shm", "mountPath": "/dev/shm"} in found["volumeMounts"]
    assert "envFrom" not in container(made, "reward")
    assert ("Secret", "redis") not in made
    for name in ("rollouts", "trainer", "inference", "feed", "archive", "exporter"):
        [url] = [v for v in container(made, name)["env"] if v["name"] == "ROOKERY_REDIS_URL"]
        assert url["valueFrom"]["secretKeyRef"] == {"name": "rookery-redis", "key": "url"}


def test_a_replica_uses_all_of_its_gpus(chart: Chart) -> None:
    assert "INFERENCE_DEVICE" not in environment(chart, "inference")
    both = render(*PASSWORD, "--set", "services.inference.gpus=2,services.trainer.gpus=4")
    assert environment(both, "inference")["INFERENCE_DEVICE"] == "0,1"
    assert environment(both, "trainer")["TRAINER_DEVICE"] == "0,1,2,3"


def test_each_service_lets_in_only_its_clients(chart: Chart) -> None:
    let_in = {}
    for (kind, name), made in chart.items():
        if kind == "NetworkPolicy":
            rules = [peer for rule in made["spec"]["ingress"] for peer in rule["from"]]
            selectors = [peer["podSelector"] for peer in rules if "podSelector" in peer]
            pods = [s["matchExpressions"][0]["values"] for s in selectors if "matchExpressions" in s]
            assert name == "redis" or EXPORTER in [s["matchLabels"] for s in selectors], "`rookery status`"
            let_in[name] = set(*pods)
    assert let_in.keys() == {name for _, name in workloads(chart)}
    assert let_in["inference"] == {"rollouts", "trainer", "arena", "viewer"}
    assert let_in["trainer"] == {"inference"}
    assert let_in["redis"] == {
        "feed", "archive", "exporter", "reward", "rollouts", "inference", "trainer", "arena", "viewer",
    }  # fmt: skip
    assert let_in["feed"] == set()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "redis.password"),
        (("--set", f"redis.password=a/b{SECRET}"), "letters and digits only"),
        (("--set", "redis.password=secret"), "32 or more"),
        (("--set", "redis.enabled=false"), "redis.secret"),
        ((*PASSWORD, "--set", "adapters.from=nfs"), 'adapters.from: "nfs"'),
        ((*PASSWORD, "--set", "adapters.from=store"), "adapters.store"),
        ((*PASSWORD, "--set", "services.reward-model.enabled=true"), "services.reward-model.claim"),
    ],
)
def test_values_that_cannot_work_are_refused(flags: tuple[str, ...], said: str) -> None:
    done = helm(*flags)
    assert done.returncode != 0
    assert said in done.stderr


def test_every_service_has_the_token_which_is_generated_or_yours(chart: Chart) -> None:
    made = chart["Secret", "token"]["data"]["token"]
    assert made != render(*PASSWORD)["Secret", "token"]["data"]["token"], "each release has its own"
    assert re.fullmatch("[A-Za-z0-9]{48}", base64.b64decode(made).decode())
    own = render(*PASSWORD, "--set", "token.secret=mine")
    assert ("Secret", "token") not in own
    for found, secret in ((chart, "r-token"), (own, "mine")):
        for kind, name in workloads(found):
            if name != "redis":
                [token] = [v for v in container(found, name)["env"] if v["name"] == "ROOKERY_TOKEN"]
                assert token["valueFrom"]["secretKeyRef"] == {"name": secret, "key": "token"}, kind


def test_whoever_has_a_password_of_redis_restarts_with_a_new_one() -> None:
    old, new = (workloads(render("--set", f"redis.password={SECRET}{word}")) for word in ("old", "new"))
    for name, workload in old.items():
        checksum = workload["spec"]["template"]["metadata"]["annotations"]["checksum/users"]
        assert checksum != new[name]["spec"]["template"]["metadata"]["annotations"]["checksum/users"]


def test_each_service_is_a_user_of_redis_of_its_own() -> None:
    made = render(*PASSWORD, *ALL)
    secret = made["Secret", "redis"]["stringData"]
    users = {line.split()[1]: line for line in secret["users.acl"].splitlines()}
    assert "@default@" not in secret["users.acl"]
    passwords = set()
    for kind, name in workloads(made):
        urls = {
            variable["valueFrom"]["secretKeyRef"]["key"]
            for variable in container(made, name)["env"]
            if variable["name"].endswith("REDIS_URL")
        }
        for key in urls:
            found = re.fullmatch(r"redis://(\w+):([0-9a-f]{64})@r-redis:6379/[01]", secret[key])
            assert found, (kind, name, key)
            assert found[1] == name
            assert f" >{found[2]} " in users[name]
            passwords.add(found[2])
    assert len(passwords) == 9 == len(users) - 1
    assert f" >{SECRET} " in users["default"]
    redis = container(made, "redis")
    assert redis["args"][1:3] == ["--aclfile", "/etc/rookery-users/users.acl"]
    own = container(render("--set", "redis.secret=mine"), "redis")
    assert own["args"][1:3] == ["--requirepass", "$(REDISCLI_AUTH)"]

"""The files of `deploy/ray`: what Ray itself and our own commands say to them, without a cluster."""

import re
import shlex
from typing import Any

import pytest
import yaml

from chess_datasets.commands.settings.positions import AnnotateSettings
from tests.conftest import ROOT

FOLDER = ROOT / "deploy/ray"
JOB: dict[str, Any] = yaml.safe_load((FOLDER / "rayjob.yaml").read_text())
CLUSTER: dict[str, Any] = yaml.safe_load((FOLDER / "cluster.yaml").read_text())


@pytest.mark.ray
def test_ray_accepts_the_cluster() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    whole = prepare_config(CLUSTER)
    validate_config(whole)
    assert whole["available_node_types"]["head"]["resources"] == {"CPU": 0}
    assert {*whole["available_node_types"]} == {"head", "worker"}
    assert "--num-cpus=0" in CLUSTER["head_start_ray_commands"][-1]


def test_all_nodes_have_the_locked_ray() -> None:
    (locked,) = re.findall(r"(?m)^ray==(\S+)", (ROOT / "requirements/ray.txt").read_text())
    assert JOB["spec"]["rayClusterSpec"]["rayVersion"] == locked
    assert f"FROM rayproject/ray:{locked}-py311-cpu" in (FOLDER / "Dockerfile").read_text()


def test_kubernetes_accepts_the_pods() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    spec = JOB["spec"]["rayClusterSpec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x"},
            "spec": group["template"]["spec"],
        }
        kubernetes_validate.validate(pod, "1.33", strict=True)


def test_every_pod_has_the_image_and_whole_cpus() -> None:
    spec = JOB["spec"]["rayClusterSpec"]
    (workers,) = spec["workerGroupSpecs"]
    assert spec["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    for group in (spec["headGroupSpec"], workers):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["image"] == "REGISTRY/rookery-ray:latest"
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert int(container["resources"]["requests"]["cpu"]) >= 1
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]


def test_the_commands_are_ours() -> None:
    (executed,) = re.findall(r"ray exec \S+ '(.*)'", (FOLDER / "README.md").read_text())
    for command in (JOB["spec"]["entrypoint"], executed):
        words = shlex.split(command)
        assert words[:3] == ["rookery", "data", "annotate"]
        settings = AnnotateSettings.parse(words[3:], prog="rookery data annotate")
        assert (settings.ray, settings.out.startswith("s3://")) == ("auto", True)

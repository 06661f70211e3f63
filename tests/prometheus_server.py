"""A real Prometheus that scrapes what runs here, configured as deploy/prometheus is."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.conftest import ROOT, free_port, require
from tests.waiting import until

VARIABLES = {"$__rate_interval": "30s", "$run": "watched"}
"""What stands for Grafana's variables."""


class PrometheusServer:
    """Use as a context manager. `targets` are addresses (host:port) by job; jobs without one are left out."""

    def __init__(self, folder: Path, targets: Mapping[str, str]) -> None:
        text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
        config = yaml.safe_load(text.replace("${RUN}", VARIABLES["$run"]))  # as docker-compose.yml does
        config["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(ROOT / "deploy/prometheus/rules.yml")]
        config["scrape_configs"] = [job for job in config["scrape_configs"] if job["job_name"] in targets]
        for job in config["scrape_configs"]:
            del job["dns_sd_configs"]
            job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
        folder.mkdir()
        self.jobs = {job["job_name"] for job in config["scrape_configs"]}
        self._file = folder / "prometheus.yml"
        self._file.write_text(yaml.safe_dump(config))
        self._log = folder / "prometheus.log"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "PrometheusServer":
        command = [f"{require('prometheus')}/prometheus", f"--config.file={self._file}"]
        command += [f"--storage.tsdb.path={self._file.parent / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{self._port}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until(self._ready, of=self._process, log=self._log, every_s=0.1)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process
        self._process.terminate()
        self._process.wait(60)

    def ask(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Series and values of an instant query, which may have variables of `VARIABLES`."""
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        answer: dict[str, Any] = httpx.get(
            f"http://127.0.0.1:{self._port}/api/v1/query", params={"query": expression}
        ).json()
        assert answer["status"] == "success", (expression, answer)
        rows = answer["data"]["result"]
        return [(row.get("metric", {}), float(row["value"][1])) for row in rows]

    def up(self) -> set[str]:
        """Jobs that answer."""
        return {series["job"] for series, value in self.ask("up") if value == 1}

    def _ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self._port}/-/ready").status_code == 200
        except httpx.TransportError:
            return False

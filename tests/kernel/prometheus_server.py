"""A real Prometheus on loopback that scrapes one target every second, and its HTTP API."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Dict, List, Optional

from tests.kernel.tool import REPOSITORY
from tests.patience import PATIENCE_S

RULES = REPOSITORY / "examples/fleet/prometheus/udsprobe.rules.yml"
CONFIGURATION = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: udsprobe
    static_configs: [{{targets: ["{target}"]}}]
"""


class QueryFailed(Exception):
    """Prometheus' own words."""


class Prometheus:
    """From its start to the end of the block.

    Args:
        program: of the distribution. folder: for its data.
        target: HOST:PORT to scrape.
    """

    def __init__(self, program: str, folder: Path, target: str) -> None:
        shutil.copy(RULES, folder)
        config = folder / "prometheus.yml"
        config.write_text(CONFIGURATION.format(target=target, rules=RULES.name))
        self._log = folder / "prometheus.log"
        self._address = f"127.0.0.1:{_free_port()}"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={self._address}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Prometheus:
        give_up_at = time.monotonic() + PATIENCE_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                self.__exit__()
                raise AssertionError(f"Prometheus is not ready: {self._log.read_text()}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def query(self, expression: str) -> List[Dict[str, Any]]:
        """The instant vector.

        Raises:
            QueryFailed: it is no valid query.
        """
        answer = self._get("/api/v1/query", query=expression)
        result = answer["result"]
        return [] if answer["resultType"] != "vector" else list(result)

    def value(self, expression: str) -> Optional[float]:
        """Of a query with one result; None when it has none."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def names(self) -> List[str]:
        """Every metric name it has seen."""
        return list(self._get("/api/v1/label/__name__/values"))

    def alerts(self) -> List[Dict[str, Any]]:
        """Those that pend or fire."""
        return list(self._get("/api/v1/alerts")["alerts"])

    def wait_for_sample_after(self, unix_s: float) -> None:
        """Until a scrape brought a sample that was begun later than this."""
        give_up_at = time.monotonic() + PATIENCE_S
        while (self.value("udsprobe_sample_timestamp_seconds") or 0.0) <= unix_s:
            assert time.monotonic() < give_up_at, self._log.read_text()
            time.sleep(0.1)

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"http://{self._address}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryFailed(error.read().decode()) from error

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

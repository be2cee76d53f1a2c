"""examples/fleet by the tools of those who will use it, and docs/metrics.md by the catalogue."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import kubernetes_validate
import pytest
import yaml

from tests.conftest import Require
from tests.repo.source_tree import ROOT
from udsprobe.views.metrics.catalogue import CATALOGUE
from udsprobe.views.metrics.otlp import SEMANTIC
from udsprobe.views.metrics.series_budget import MAX_SERIES_DEFAULT

FLEET = ROOT / "examples" / "fleet"
RULES = FLEET / "prometheus" / "udsprobe.rules.yml"
KUBERNETES = "1.31"


def said_by(*command: str, cwd: Path = FLEET) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# ------------------------------------------------------------ docs/metrics.md


def documented() -> Dict[str, List[str]]:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(udsprobe_\w+)` (.+?) \|$", page, re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split(" | ")] for name, rest in rows}


def test_every_metric_has_its_row() -> None:
    expected = {
        name: [
            metric.kind,
            f"`{metric.otel}` {metric.otel_unit}",
            ", ".join(f"`{label}`" for label in metric.labels) or "–",
            metric.help,
        ]
        for name, metric in CATALOGUE.items()
    }
    assert documented() == expected


def test_the_page_names_attributes_and_the_cap() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert [name for name in SEMANTIC.values() if f"`{name}`" not in page] == []
    assert f"`--max-series` time series ({MAX_SERIES_DEFAULT:,})" in page


# ------------------------------------------------------------ Prometheus, Grafana


@pytest.mark.parametrize(
    "words",
    [
        ("check", "rules", "udsprobe.rules.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "udsprobe.rules.test.yml"),
    ],
    ids=" ".join,
)
def test_promtool(words: List[str], require: Require) -> None:
    said = said_by(require("promtool")["promtool"], *words, cwd=FLEET / "prometheus")
    assert "SUCCESS" in said and "FAILED" not in said


def test_every_alert_says_what_to_do() -> None:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(alerts) >= 8
    for alert in alerts:
        assert set(alert["annotations"]) == {"summary", "action"}, alert["alert"]
        assert alert["labels"]["severity"] in ("info", "warning", "critical")


def test_the_dashboard_is_complete() -> None:
    board = json.loads((FLEET / "grafana/dashboards/udsprobe.json").read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(panel["title"] and panel["targets"] for panel in panels)
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]}
    assert len(places) == len(board["panels"]), "two panels in one place"
    for path in (FLEET / "grafana" / "provisioning").rglob("*.yml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["apiVersion"] == 1


# ------------------------------------------------------------ systemd, Kubernetes, image


def unit_for(folder: Path) -> Path:
    """The unit with a program that exists here."""
    unit = folder / "udsprobe-export.service"
    text = (FLEET / "systemd" / unit.name).read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/udsprobe/bin/udsprobe", shutil.which("true") or ""))
    return unit


def test_systemd_finds_no_fault(tmp_path: Path, require: Require) -> None:
    analyze = require("systemd-analyze")["systemd-analyze"]
    unit = unit_for(tmp_path)
    assert said_by(analyze, "verify", "--man=no", str(unit)) == ""
    # `security` ends with 1 above the threshold, tenths of its scale of 0 to 10.
    said_by(analyze, "security", "--offline=true", "--threshold=30", str(unit))


def test_the_units_options_are_options_of_export() -> None:
    default = (FLEET / "systemd" / "udsprobe.default").read_text(encoding="utf-8")
    (arguments,) = re.findall(r'^UDSPROBE_ARGS="(.+)"$', default, re.MULTILINE)
    manifests = yaml.safe_load_all((FLEET / "kubernetes/daemonset.yaml").read_text())
    daemon = next(each for each in manifests if each["kind"] == "DaemonSet")
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    said = said_by(sys.executable, "-m", "udsprobe", "export", "--help", cwd=ROOT)
    for word in (*arguments.split(), *container["args"]):
        assert not word.startswith("-") or f"{word} " in said, word


def test_manifests_follow_kubernetes_schemas() -> None:
    manifests = list(yaml.safe_load_all((FLEET / "kubernetes/daemonset.yaml").read_text()))
    assert [each["kind"] for each in manifests] == ["Namespace", "ServiceAccount", "DaemonSet"]
    for manifest in manifests:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    broken: Dict[str, Any] = {**manifests[2], "spec": {"template": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


def test_the_pod_monitor_finds_the_pods() -> None:
    monitor = yaml.safe_load((FLEET / "kubernetes/podmonitor.yaml").read_text())
    manifests = yaml.safe_load_all((FLEET / "kubernetes/daemonset.yaml").read_text())
    daemon = next(each for each in manifests if each["kind"] == "DaemonSet")
    pod = daemon["spec"]["template"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= pod["metadata"]["labels"].items()
    assert monitor["metadata"]["namespace"] == daemon["metadata"]["namespace"]
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert {end["port"] for end in monitor["spec"]["podMetricsEndpoints"]} <= ports


def test_hadolint_finds_no_fault(require: Require) -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    hadolint = hadolint or require("hadolint")["hadolint"]
    assert said_by(hadolint, "container/Containerfile") == ""

"""The dashboard's queries by Prometheus itself: of a service in detail auto they have no gap."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.conftest import Require
from tests.repo.source_tree import ROOT

BOARD = ROOT / "examples" / "fleet" / "grafana" / "dashboards" / "udsprobe.json"
SCRAPES = 60
# A window of one second each two minutes; in each 100 calls, 50 requests and 0.4 s of user time.
APART = 8
WINDOWS = [at // APART for at in range(SCRAPES)]
HERE, PATH = 'instance="a"', 'address="/run/app.sock"'
IN_WINDOWS = {
    f'udsprobe_syscall_calls_total{{{HERE},name="read",transport="unix"}}': 100.0,
    f'udsprobe_syscall_errors_total{{{HERE},name="read",errno="EAGAIN"}}': 10.0,
    f"udsprobe_syscall_all_total{{{HERE}}}": 200.0,
    f'udsprobe_thread_time_seconds_total{{{HERE},activity="user"}}': 0.4,
    f'udsprobe_connect_duration_seconds_count{{{HERE},{PATH},errno="0"}}': 5.0,
    f'udsprobe_served_request_stage_seconds_sum{{{HERE},stage="app"}}': 0.25,
    f'udsprobe_served_request_stage_seconds_count{{{HERE},stage="app"}}': 50.0,
    f'udsprobe_listener_wait_seconds_bucket{{{HERE},{PATH},le="0.1"}}': 50.0,
    f'udsprobe_listener_wait_seconds_bucket{{{HERE},{PATH},le="+Inf"}}': 50.0,
}
OBSERVED = {
    f'udsprobe_observed_seconds_total{{{HERE},measurement="{name}"}}': 1.0
    for name in ("syscalls", "thread_time", "connects")
}
PANELS = {
    "Calls by name": ('{name="read",transport="unix"}', 100.0),
    "Failed calls": ('{name="read",errno="EAGAIN"}', 10.0),
    "System calls per request": ('{instance="a"}', 4.0),
    "Where the threads' time goes": ('{activity="user"}', 0.4),
    "Own connects by result": (f'{{{PATH},errno="0"}}', 5.0),
    "Mean request by stage": ('{stage="app"}', 0.005),
    "Wait in the queue, p99": (f"{{{PATH}}}", 0.099),
}


def query(title: str) -> str:
    """The first of a panel, as Grafana asks it of sources scraped each 15 s."""
    panels = json.loads(BOARD.read_text(encoding="utf-8"))["panels"]
    target, *_ = next(panel for panel in panels if panel["title"] == title)["targets"]
    expression: str = target["expr"]
    return expression.replace("$__rate_interval", "1m").replace("$instance", "a")


def series(name: str, values: List[float]) -> Dict[str, str]:
    return {"series": name, "values": " ".join(f"{value:g}" for value in values)}


def answers(promtool: str, folder: Path, inputs: List[Dict[str, str]], tests: List[Any]) -> None:
    """Whether Prometheus answers so."""
    group = {"interval": "15s", "input_series": inputs, "promql_expr_test": tests}
    path = folder / "dashboard.test.yml"
    path.write_text(json.dumps({"evaluation_interval": "15s", "tests": [group]}))
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def expected(title: str, eval_time: str, value: float) -> Dict[str, Any]:
    labels, _ = PANELS[title]
    samples = [{"labels": labels, "value": value}]
    return {"expr": f"round({query(title)}, 1e-6)", "eval_time": eval_time, "exp_samples": samples}


@pytest.mark.parametrize("title", PANELS)
def test_in_auto_no_panel_has_a_gap(title: str, tmp_path: Path, require: Require) -> None:
    counted = {**IN_WINDOWS, **OBSERVED}
    inputs = [series(name, [each * at for at in WINDOWS]) for name, each in counted.items()]
    inputs.append(series(f"udsprobe_targets{{{HERE}}}", [1.0] * SCRAPES))
    moments = [f"{15 * at}s" for at in range(SCRAPES // 2, SCRAPES)]
    value = PANELS[title][1]
    tests = [expected(title, moment, value) for moment in moments]
    answers(require("promtool")["promtool"], tmp_path, inputs, tests)


@pytest.mark.parametrize("title", PANELS)
def test_in_full_every_panel_is_of_the_newest_minute(
    title: str, tmp_path: Path, require: Require
) -> None:
    """All seconds are observed, and after nine minutes twice as much is done."""
    steps = [15.0 if at < 36 else 30.0 for at in range(SCRAPES)]
    sums = [sum(steps[:at]) for at in range(SCRAPES)]
    inputs = [series(name, [each * at for at in sums]) for name, each in IN_WINDOWS.items()]
    inputs.append(series(f"udsprobe_targets{{{HERE}}}", [3.0] * SCRAPES))
    value = PANELS[title][1]
    ratios = ("System calls per request", "Mean request by stage", "Wait in the queue, p99")
    twice = value if title in ratios else 2 * value
    tests = [expected(title, "8m", value), expected(title, "12m", twice)]
    answers(require("promtool")["promtool"], tmp_path, inputs, tests)


@pytest.mark.parametrize("title", PANELS)
def test_in_full_without_requests_nothing_older_is_shown(
    title: str, tmp_path: Path, require: Require
) -> None:
    ends = [15.0 * min(at, 20) for at in range(SCRAPES)]
    inputs = [series(name, [each * at for at in ends]) for name, each in IN_WINDOWS.items()]
    inputs.append(series(f"udsprobe_targets{{{HERE}}}", [1.0] * SCRAPES))
    nothing = {"expr": f"{query(title)} > 0", "eval_time": "8m", "exp_samples": []}
    answers(require("promtool")["promtool"], tmp_path, inputs, [nothing])

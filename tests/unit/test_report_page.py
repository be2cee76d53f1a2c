"""The page of a recording, parsed and in a real Chromium: the document's numbers, and no script."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, List

import pytest
from matplotlib import dates

from tests.unit import recordings, reports, samples
from tests.unit.chromium import HOSTILE, Page, opened
from udsprobe.cli import main
from udsprobe.model.action import by_hand, command
from udsprobe.model.harm import Harm
from udsprobe.model.report import (
    Connection,
    Evidence,
    Finding,
    Hop,
    Peer,
    Report,
    RunnerUp,
    SendBlocked,
    Upstream,
    Verdict,
)
from udsprobe.model.timeline import Timeline, timeline
from udsprobe.sample import Sample
from udsprobe.views.fields import cells, numbers, words
from udsprobe.views.html.report_page import Moment, render
from udsprobe.views.html.time_plots import clock_label, heat_levels
from udsprobe.views.text.report_text import latency_line, served_line

BYTES_MAX = 2 << 20
SECTIONS = [
    "Evidence",
    "What to do",
    "Where a request spends its time",
    "Latency over time",
    "Accept queues over time",
    "Where the busiest thread's time went",
    "System calls",
    "Listeners",
    "Connections and chain of hops",
    "Targets",
    "Findings",
    "Own cost and losses",
    "What was not measured",
]


def told(taken: List[Sample]) -> Timeline:
    return timeline(taken, taken[-1])


def line(count: int = 40) -> Timeline:
    return told(list(recordings.service(count)))


def full() -> Report:
    """Everything a page can show."""
    evidence = [Evidence("busy_share", 0.97, "of 1", 0.8, "97 % busy")]
    actions = [
        by_hand("run more workers", "one is not enough"),
        command("nice -n 0", "do nothing", "why"),
    ]
    peer = Peer(33, "nginx")
    report = reports.measured()
    return replace(
        report,
        verdict=Verdict(
            *("app-cpu", False, 1.2, 1.1, 0.8, "Not the transport: busy.", "node"),
            evidence,
            actions,
            [RunnerUp("accept-queue-full", 12.0)],
            "not-transport",
            Harm("slow", None, 9, None, "requests take 99 µs on average"),
        ),
        findings=[
            Finding("app-cpu", "critical", "node", "node is busy", evidence, actions),
            Finding("fd-limit", "warning", "node", "few descriptors", evidence, actions),
        ],
        requests=replace(
            report.requests,
            upstream=[Upstream("unix", "/run/db.sock", peer, 9, reports.latency(9, 4.0))],
            hops=[Hop(4711, [4711, 4712], "node", "/run/app.sock", 9, 99.0, 9.0, 90.0, [812])],
        ),
        connections=[
            Connection(
                *("unix", "/run/app.sock", peer, 4711, "served", 7, 70, 700, 0, 0, 212_992),
                SendBlocked(1, reports.latency(1, 5.0), 0),
            )
        ],
        connections_total=12,
    )


def hostile(value: Any) -> Any:
    """The same with all that other processes could have named made to hurt."""
    if isinstance(value, str):
        return value + " ".join(HOSTILE)
    if isinstance(value, list):
        return [hostile(each) for each in value]
    if isinstance(value, dict):
        counted = all(isinstance(each, int) for each in value.values())
        return {hostile(key) if counted else key: each for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: hostile(getattr(value, f.name)) for f in fields(value)})
    return value


def text_of(html: str) -> str:
    return " ".join(Page(html).text.split())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Any]:
    """A recording's page and its document, as the command writes them."""
    folder = tmp_path_factory.mktemp("made")
    path = folder / "a.udsprobe"
    recordings.recorded(path, 300, findings=(50, 51))
    assert main(["report", str(path), "--html", str(folder / "a.html")]) == 0
    assert main(["report", str(path), "--json", "--output", str(folder / "a.json")]) == 0
    return {
        "path": path,
        "html": (folder / "a.html").read_text(encoding="utf-8"),
        "document": json.loads((folder / "a.json").read_text()),
    }


def test_numbers_are_the_documents(made: Dict[str, Any]) -> None:
    text, document = text_of(made["html"]), made["document"]
    served = document["requests"]["served"]
    assert f"served {served['count']:,} ·" in text
    for name in ("p50", "p90", "p99", "p999", "max"):
        assert f"{name} {numbers.duration(served['latency_us'][name])}" in text
    for call in document["syscalls"]:
        assert call["name"] in text and numbers.count(call["calls"]) in text
    probe = document["probe"]
    assert f"seen {probe['events_seen']:,} · counted {probe['events_counted']:,}" in text
    first = document["verdict"]["summary"].split(". ")[0].rstrip(".")
    assert first.removeprefix("No bottleneck: ") in text


def test_tables_add_up_to_the_document(made: Dict[str, Any]) -> None:
    served = made["document"]["requests"]["served"]["count"]
    for name in ("bands", "intervals"):
        table = made["html"].split(f'<caption id="{name}">')[1].split("</table>")[0]
        rows = re.findall(r"<th scope=\"row\"[^>]*>.*?</th>\s*<td>([\d,]+)</td>", table)
        assert rows and sum(int(row.replace(",", "")) for row in rows) == served


def test_long_recordings_say_that_they_are_thinned(made: Dict[str, Any]) -> None:
    assert "300 samples are shown as 150 intervals of 2 s" in text_of(made["html"])
    assert "40 intervals" not in text_of(render(full(), line()))
    assert "39 intervals of 1 s, one for each sample" in text_of(render(full(), line()))


def test_a_part_of_a_recording(made: Dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "part.html"
    arguments = ["--html", str(out), "--from", "+10s", "--to", "+30s"]
    assert main(["report", str(made["path"]), *arguments]) == 0
    text = text_of(out.read_text(encoding="utf-8"))
    assert "20 s from" in text and "20 intervals of 1 s" in text
    assert "the queue is full" not in text and "the queue is full" in text_of(made["html"])


def test_sections_come_in_order() -> None:
    html = render(full(), line())
    assert re.findall(r"<h2>(.*?)</h2>", html) == SECTIONS


def test_words_are_those_of_the_text() -> None:
    report = full()
    text = text_of(render(report, line()))
    served = report.requests.served
    assert served is not None and report.verdict is not None
    for said in (served_line(served), latency_line(served), words.cost(report.probe)):
        assert " ".join(said.split()) in text
    lead = "requests take 99 µs on average: node is busy · sure 80 %"
    assert f"NOT THE TRANSPORT · critical: app-cpu · {lead}" in text
    assert "a free transport would save at most 1.1 % of request time" in text
    assert "97 % busy" in text and "busy_share 97 %, threshold 80 %" in text
    assert "run more workers" in text and "one is not enough" in text
    assert "warning: fd-limit few descriptors" in text
    for row in report.listeners or ():
        assert row.address in text and cells.trouble(row) in text
    assert "nginx 33" in text and "11 more are open" in text


def test_targets_say_where_they_run() -> None:
    report = full()
    placed = [replace(each, unit="app.service", pod="9a1c") for each in report.targets]
    text = text_of(render(replace(report, targets=placed), line()))
    assert "The observed processes." in text and "pod 9a1c in app.service" in text


def test_what_was_not_measured_says_so_and_why() -> None:
    report = reports.degraded()
    nothing = told([samples.unmeasured_sample(0.0), samples.unmeasured_sample(1.0)])
    html = render(report, nothing)
    text = text_of(html)
    assert "this kernel has no BTF" in text and "<svg" not in html
    assert "served 0" not in text and "LOST 312" in text
    row = re.search(r"unix:/run/app.sock</th>(.*?)</tr>", html, re.DOTALL)
    assert row is not None
    measured = re.findall(r"<td[^>]*>(.*?)</td>", row[1])
    assert measured[:5] == ["–", "–", "129", "128", "–"]
    assert "0" not in measured


def test_a_target_that_did_nothing() -> None:
    quiet = [samples.sample(float(at), served=samples.served()) for at in range(3)]
    text = text_of(render(reports.empty(), told(quiet)))
    assert "No reply was sent" in text and "Latency over time" not in text


def test_the_size_is_bounded() -> None:
    report = full()
    many = [replace(row, address=f"/run/{n}.sock") for n in range(40) for row in reports.shared()]
    calls = (report.syscalls or []) * 40
    wide = replace(
        report,
        listeners=many,
        syscalls=calls,
        connections=(report.connections or []) * 50,
        connects=(report.connects or []) * 500,
    )
    every = [2 ** (each % 36) + each for each in range(20_000)]
    busy = [samples.sample(float(at), served=samples.served(every[: at * 70])) for at in range(285)]
    html = render(wide, told(busy))
    assert len(html.encode()) < BYTES_MAX
    assert "more rows are left out" in text_of(html)


def test_the_page_needs_nothing_else(made: Dict[str, Any]) -> None:
    html = made["html"]
    addresses = set(re.findall(r"https?://[^\"'\s<]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "@import" not in html and not re.search(r"url\((?!#)", html)
    assert "default-src 'none'" in html and "<script" not in html


def test_colours_are_the_style_sheets() -> None:
    html = render(full(), line())
    assert html.count("var(--heat6)") >= 2
    assert not re.search(r"#(0[1-4]0[2-5]0[0-9a-f])\b", html)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100, 123_456])
def test_levels_of_the_heat_map_cover_every_count_once(most: int) -> None:
    bounds = [bounds for bounds, _ in heat_levels(most)]
    assert bounds[0][0] == 1 and bounds[-1][1] == most
    assert all(low <= high for low, high in bounds)
    assert all(one[1] + 1 == two[0] for one, two in zip(bounds, bounds[1:]))


def test_chromium_has_nothing_to_complain_about(
    made: Dict[str, Any], tmp_path: Path, chromium: str
) -> None:
    page, console = opened(made["html"], tmp_path, chromium)
    assert console == []
    assert page.title == "udsprobe: node 4711"
    assert page.tags.count("svg") >= 4
    assert page.tags.count("table") == page.tags.count("caption")
    assert len(page.ids) == len(set(page.ids))


def test_hostile_names_stay_names(tmp_path: Path, chromium: str) -> None:
    report = hostile(full())
    moments = [Moment(1.0, 2.0, "warning", HOSTILE[0], HOSTILE[1])]
    html = render(report, line(), moments)
    # Without the page's own ban on scripts: escaping has to be enough.
    bare = re.sub(r"<meta http-equiv=[^>]*>", "", html)
    assert bare != html
    page, console = opened(bare, tmp_path, chromium)
    assert console == []
    assert page.title.startswith("udsprobe: node")
    assert not {"script", "img", "iframe", "object", "embed"} & set(page.tags)
    assert page.handlers == []
    assert HOSTILE[0] in page.text and "{{ 7*7 }}" in page.text
    assert "\x1b" not in page.text and "\u202e" not in page.text


ERRORS: List[List[str]] = [["--json"], ["--output", "x"]]


@pytest.mark.parametrize("more", ERRORS)
def test_one_form_at_a_time(
    made: Dict[str, Any], more: List[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(made["path"]), "--html", "out.html", *more]) == 2
    assert "--html cannot be combined" in capsys.readouterr().err


def test_a_page_that_cannot_be_written(
    made: Dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(made["path"]), "--html", str(tmp_path / "no" / "x")]) == 2
    assert "error[output-not-writable]" in capsys.readouterr().err


def test_missing_libraries_are_named(
    made: Dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("udsprobe.views.html")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(made["path"]), "--html", "out.html"]) == 2
    assert "error[no-html-libraries]: --html needs matplotlib" in capsys.readouterr().err
    assert not Path("out.html").exists()


@pytest.mark.parametrize(
    ("seconds", "label"),
    [(2.0, "14:20:25.5"), (30.0, "14:20:25"), (7200.0, "14:20"), (200_000.0, "11-23 14:20")],
)
def test_ticks_are_times_of_day(seconds: float, label: str) -> None:
    moment = datetime(2026, 11, 23, 14, 20, 25, 500_000, tzinfo=timezone.utc)
    assert clock_label(float(dates.date2num(moment)), seconds) == label


def test_the_time_axis_says_its_day() -> None:
    day = datetime.fromtimestamp(line().start_unix_s, tz=timezone.utc)
    assert f"time of day on {day:%Y-%m-%d}, UTC" in render(full(), line())

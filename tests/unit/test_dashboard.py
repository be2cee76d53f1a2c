"""The live screen, on terminals of three sizes: what is on it, what keys do, what stays put."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Callable, Sequence

import pytest
from rich.cells import cell_len
from textual.events import Key, MouseScrollDown

from tests.unit import reports, verdicts
from tests.unit.feeds import FailingFeed, ListFeed, frame
from tests.unit.screens import SIZES, Size, dashboard, focus
from udsprobe.errors import KernelCannotError
from udsprobe.model.report import GivenUp, Report, Unanswered, Waiting
from udsprobe.views.dashboard import Frame, run_dashboard
from udsprobe.views.dashboard.app import Dashboard

KINDS = [reports.busy, reports.empty, reports.degraded, reports.hostile, reports.measured]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
async def test_fills_the_screen_and_nothing_sticks_out(
    kind: Callable[[], Report], size: Size
) -> None:
    async with dashboard(frame(kind()), size=size) as screen:
        lines = screen.lines()
        assert len(lines) == size[1]
        assert max(cell_len(line) for line in lines) <= size[0]
        assert all(line.isprintable() for line in lines)
        assert lines[0].startswith(" udsprobe · ")
        assert "q quit" in lines[-1] and "tracepoint · " in lines[-2]
        for name in ("requests", "listeners", "system calls", "targets"):
            assert any(f"{name} " in line for line in lines if line[:1] in "─━")


@pytest.mark.parametrize("size", SIZES)
async def test_order_from_the_verdict_to_the_targets(size: Size) -> None:
    async with dashboard(frame(reports.busy()), size=size) as screen:
        lines = screen.lines()
        names = ("requests", "listeners", "system calls", "targets")
        places = [lines.index(screen.rule(name)) for name in names]
        assert places == sorted(places)
        assert "verdict:" in lines[1]


async def test_the_smallest_screen_shows_the_first_rows_of_everything() -> None:
    async with dashboard(frame(reports.busy()), size=(80, 24)) as screen:
        assert "verdict: not measured in this version" in screen.lines()[1]
        assert "p50 2.10ms  p99 7.35ms" in screen.row("served 4,812/s")
        assert "97    129" in screen.row("/run/app.sock")
        read = screen.row("read ", "unix").replace("▸", " ").split()
        assert read[:6] == ["read", "unix", "9,624", "4,812", "1.20µs", "3.60µs"]
        assert "1,024" in screen.row("4711", "▕")


async def test_a_larger_screen_shows_more_columns_rows_and_history() -> None:
    async with dashboard(frame(reports.busy()), size=(200, 60)) as screen:
        titles = screen.rule("system calls")
        for title in ("calls", "p90", "p999", "mean", "slow%", "errors since the start"):
            assert title in titles
        assert "EAGAIN 16,842, EMFILE 3" in screen.row("accept4", "unix")
        assert screen.row("sendmsg")
        assert "calls/request" in screen.text()


async def test_columns_line_up_under_their_titles() -> None:
    async with dashboard(frame(reports.busy()), size=(120, 40)) as screen:
        titles = screen.rule("system calls")
        row = screen.row("epoll_pwait", "other")
        for title, value in (("calls/s", "6,352"), ("p99", "930µs"), ("now", "4")):
            end = titles.index(title) + len(title)
            assert row[:end].endswith(value)


async def test_before_the_first_frame() -> None:
    async with dashboard() as screen:
        assert "warming up" in screen.lines()[1]
        assert "waiting for the first numbers" in screen.text()
        assert "starting" in screen.lines()[0]


async def test_clock_comes_with_the_report() -> None:
    async with dashboard(frame(reports.busy(10.0))) as screen:
        assert screen.lines()[0].endswith("● live · every 1 s · 03:12:41")


async def test_rows_keep_their_place_between_frames() -> None:
    first = reports.busy(1.0)
    assert first.syscalls is not None
    turned = replace(
        first, syscalls=[replace(c, calls=900 + i) for i, c in enumerate(first.syscalls)]
    )
    async with dashboard(*[frame(first)] * 3, size=(120, 40)) as screen:
        before = [line[2:30] for line in screen.lines()]
        await screen.give(frame(turned))
        assert [line[2:30] for line in screen.lines()] == before


async def test_a_frame_changes_digits_and_moves_nothing() -> None:
    async with dashboard(*[frame(reports.busy(1.0))] * 3, size=(120, 40)) as screen:
        before = screen.row("epoll_pwait", "other")
        await screen.give(frame(reports.busy(1.0, scale=0.013)))
        after = screen.row("epoll_pwait", "other")
        assert after != before
        for unit in ("µs", "ms"):
            assert after.rindex(unit) == before.rindex(unit)


async def test_new_rows_are_added_below() -> None:
    first = reports.busy(1.0)
    assert first.syscalls is not None
    more = [reports.syscall("sendfile", "tcp", calls=10**9), *first.syscalls]
    async with dashboard(*[frame(first)] * 3, size=(120, 40)) as screen:
        await screen.give(frame(replace(first, syscalls=more)))
        lines = screen.lines()
        names = [line.split()[0] for line in lines if " 1.20µs" in line or "sendmsg" in line]
        assert "sendfile" in names and names.index("sendfile") > names.index("sendmsg")


async def test_a_row_with_nothing_in_this_interval_stays() -> None:
    window = reports.busy()
    async with dashboard(Frame(replace(window, syscalls=[]), window), size=(120, 40)) as screen:
        assert screen.row("accept4", "unix").split()[2:6] == ["0", "0", "·", "·"]


async def test_sort_cycles_and_says_so() -> None:
    async with dashboard(frame(reports.busy()), size=(120, 40)) as screen:
        assert screen.lines()[-2].endswith("sorted by calls")
        await screen.press("s", "s")
        assert screen.lines()[-2].endswith("sorted by p99")
        assert "epoll_pwait" in screen.below("system calls")


async def test_pause_freezes_the_picture_and_not_the_measuring() -> None:
    async with dashboard(frame(reports.busy(10.0)), size=(120, 40)) as screen:
        await screen.press("p")
        frozen = screen.lines()
        assert "PAUSED at 03:12:41, still measuring" in frozen[0]
        await screen.give(frame(reports.busy(20.0, scale=2.0)))
        await screen.press("down", "up")
        assert screen.lines() == frozen
        await screen.press("p")
        assert "9,624/s" in screen.text() and "03:12:51" in screen.lines()[0]


async def test_filter_hides_what_does_not_match_and_escape_shows_all() -> None:
    async with dashboard(frame(reports.busy()), size=(120, 40)) as screen:
        await screen.press("slash", *"accept4", "enter")
        assert "accept4" in screen.text() and "epoll_ctl  " not in screen.text()
        assert "filter accept4" in screen.lines()[-2]
        assert screen.row("/run/app.sock")
        await screen.press("escape")
        assert "epoll_ctl  " in screen.text()


async def test_the_filter_is_of_the_panel_it_was_begun_in() -> None:
    async with dashboard(frame(reports.busy()), size=(120, 40)) as screen:
        await screen.press("tab", "slash", *"master", "enter")
        assert "no row matches the filter 'master'; Esc clears it" in screen.below("targets")
        assert screen.row("accept4", "unix") and screen.row("/run/app.sock")
        assert screen.rule("targets").startswith("━━")


async def test_what_is_typed_at_once_is_all_in_the_filter() -> None:
    async with dashboard(frame(reports.busy()), size=(120, 40)) as screen:
        for character in "/q/sp":
            screen.app.post_message(Key("slash" if character == "/" else character, character))
        await screen.press("enter")
        assert "filter q/sp" in screen.lines()[-2]
        assert "PAUSED" not in screen.lines()[0]


async def test_escape_leaves_the_filter_line() -> None:
    async with dashboard(frame(reports.busy())) as screen:
        await screen.press("slash", "q", "escape")
        assert "q quit" in screen.lines()[-1]
        assert screen.app.is_running


async def test_tab_moves_to_the_next_panel_and_zoom_fills_the_screen() -> None:
    async with dashboard(frame(reports.busy())) as screen:
        await screen.press("tab")
        assert screen.rule("targets").startswith("━━ targets ")
        await screen.press("z")
        assert "system calls 1–" not in screen.text()
        assert screen.row("4711", "node --serve") and screen.row("814", "–")
        await screen.press("z")
        assert screen.rule("system calls")


async def test_the_cursor_scrolls_through_rows_that_do_not_fit() -> None:
    async with dashboard(frame(reports.busy()), size=(80, 24)) as screen:
        assert "1–9 of 14" in screen.rule("system calls")
        await screen.press("end")
        assert "6–14 of 14" in screen.rule("system calls")
        assert screen.row("▸").split()[:2] == ["▸", "sendmsg"]
        await screen.press("home", "down")
        assert screen.row("▸").split()[:2] == ["▸", "epoll_pwait"]


async def test_the_cursor_stays_on_its_row_when_rows_are_sorted() -> None:
    async with dashboard(frame(reports.busy()), size=(120, 40)) as screen:
        await screen.press("down", "s")
        assert screen.row("▸").split()[:2] == ["▸", "epoll_pwait"]


@pytest.mark.parametrize(
    ("panel", "words"),
    [
        ("system calls", ("calls                    96,240", "EAGAIN 48,120", "tp_btf:sys_enter")),
        ("targets", ("command line             node --serve", "142 of 1,024")),
        ("requests", ("served                   48,120", "futex                    0.21")),
        ("listeners", ("97 of 129", "net.core.somaxconn", "node 4711")),
    ],
)
async def test_details_of_a_row(panel: str, words: tuple[str, ...]) -> None:
    async with dashboard(frame(reports.busy()), size=(100, 40)) as screen:
        await focus(screen, panel)
        await screen.press("enter")
        assert "details (Esc leaves)" in screen.lines()[0]
        for word in words:
            assert word in screen.text()
        await screen.press("escape")
        assert "q quit" in screen.lines()[-1]


async def test_a_targets_page_says_where_it_runs() -> None:
    report = reports.busy()
    inside = replace(
        report.targets[0], unit="docker.service", container="0123456789ab" + "c" * 52, pod="9a1c"
    )
    async with dashboard(frame(replace(report, targets=[inside]))) as screen:
        await focus(screen, "targets")
        await screen.press("enter")
        assert "container 0123456789ab pod 9a1c in docker.service" in screen.text()


async def test_details_follow_the_frames() -> None:
    async with dashboard(frame(reports.busy(10.0)), size=(100, 40)) as screen:
        await screen.press("enter")
        await screen.give(frame(reports.busy(20.0)))
        assert "192,480" in screen.text()


async def test_details_of_what_is_not_measured_say_why() -> None:
    async with dashboard(frame(reports.degraded()), size=(100, 40)) as screen:
        assert "not measured: this kernel has no BTF" in screen.text()
        await screen.press("enter")
        assert "syscalls: off: this kernel has no BTF" in screen.text()


async def test_losses_are_said_in_a_word() -> None:
    async with dashboard(frame(reports.degraded()), size=(120, 40)) as screen:
        assert "LOST 312 (map full 312)" in screen.lines()[-2]


async def test_the_probes_cost_stays_where_an_interval_did_not_measure_it() -> None:
    window = reports.busy()
    interval = replace(window, probe=replace(window.probe, bpf_cpu_pct=None))
    async with dashboard(Frame(interval, window)) as screen:
        assert "probes 1.31 %" in screen.lines()[-2]


async def test_a_full_listener_is_said_in_a_word() -> None:
    async with dashboard(frame(reports.busy(queue=129))) as screen:
        assert "FULL" in screen.row("/run/app.sock")


async def test_what_befell_connections_at_a_listener() -> None:
    report = replace(reports.busy(), listeners=[reports.crowded()])
    async with dashboard(frame(report), size=(100, 60)) as screen:
        row = screen.row("/run/app.sock").split()
        assert row[-6:-1] == ["129", "129", "129", "27.0ms", "FULL"]
        told = "REFUSED EAGAIN 312 · BLOCKED 3 now, 7 before: p99 123ms · accepting 120/s"
        assert screen.row("REFUSED").strip() == told
        await screen.press("shift+tab", "enter")
        for words in (
            "refused                  EAGAIN 312",
            "in connect(), queue full",
            "3 waiting now, 7 before",
            "cut to it: raise net.core.somaxconn, then call listen() again",
            "64–127                             0",
            "128–129                            1  ▏",
            "p99                         27.0ms",
        ):
            assert words in screen.text()
        assert screen.row("node 4711", "1,200", "100 %", "████")
        assert screen.row("4712", " 0 ", "0.0 %")


async def test_a_wide_screen_tells_trouble_and_history_in_the_row() -> None:
    reports_of = [reports.measured(1.0), reports.measured(1.0)]
    async with dashboard(*map(frame, reports_of), size=(200, 60)) as screen:
        row = screen.row("/run/app.sock")
        assert "REFUSED EAGAIN 312 · BLOCKED 3 now" in row and "  ██  " in row
        assert "high-water history" in screen.rule("listeners")


async def test_listeners_at_one_address_stay_together_and_have_a_sum() -> None:
    rows = reports.shared()
    apart = [rows[0], *(reports.busy().listeners or []), *rows[1:]]
    async with dashboard(frame(replace(reports.busy(), listeners=apart)), size=(100, 60)) as screen:
        lines = screen.lines()
        at = lines.index(screen.row("0.0.0.0:8080 ×3"))
        assert lines[at].split()[-4:] == ["17", "51", "1", "FULL"]
        assert [line.split()[2] for line in lines[at + 1 : at + 2]] == ["pid"]
        assert "└ pid 822" in lines[at + 1] and "DROPPED 5" in lines[at + 2]
        assert "└ pid 820" in lines[at + 3] and "└ pid 821" in lines[at + 4]
        await screen.press("shift+tab", "enter")
        assert "3 sockets (SO_REUSEPORT)" in screen.text()
        assert screen.row("pid 821", "100", "33.3")


async def test_a_closed_listener_says_so() -> None:
    closed = replace(reports.listener("/run/old.sock", now=None), state="closed")
    async with dashboard(frame(replace(reports.busy(), listeners=[closed]))) as screen:
        assert "CLOSED" in screen.row("/run/old.sock")


async def test_where_the_time_goes_is_below_the_verdict() -> None:
    async with dashboard(frame(reports.measured()), size=(80, 24)) as screen:
        lines = screen.lines()
        assert "request 1.00ms" in lines[2] and "app 79.9" in lines[2]
        assert "queued for the app 18.0" in lines[2]
        assert "thread node 4711" in lines[3] and "user 93.0" in lines[3]


@pytest.mark.parametrize("size", [(140, 24), (80, 40)])
async def test_larger_screens_say_what_app_consisted_of(size: Size) -> None:
    async with dashboard(frame(reports.measured()), size=size) as screen:
        assert "cpu 90.0" in screen.lines()[3]
        assert "user 93.0" in screen.lines()[4]
        await focus(screen, "requests")
        await screen.press("enter", "end")
        assert screen.row("upstream ", "4.0 %")


async def test_an_interval_without_requests_moves_nothing() -> None:
    busy = reports.measured()
    assert busy.requests.served is not None
    served = reports.served(0, 1.0)
    quiet = replace(
        busy,
        requests=replace(
            busy.requests, served=replace(served, stages_us=busy.requests.served.stages_us)
        ),
    )
    async with dashboard(frame(busy), size=(140, 40)) as screen:
        names = ("requests", "listeners", "system calls", "targets")
        before = [screen.lines().index(screen.rule(name)) for name in names]
        await screen.give(Frame(quiet, busy))
        assert "no request was served" in screen.lines()[2]
        assert [screen.lines().index(screen.rule(name)) for name in names] == before


async def test_pipelined_requests_are_said_beside_their_latency() -> None:
    report = reports.measured()
    assert report.requests.served is not None
    served = replace(report.requests.served, turn_based=False)
    pipelined = replace(report, requests=replace(report.requests, served=served))
    async with dashboard(frame(pipelined)) as screen:
        lines = screen.lines()
        place = lines.index(screen.row("served 4,812/s"))
        assert "pipelined: latencies are not of single requests" in lines[place + 1]


async def test_clients_that_left_are_told_on_the_page_of_requests() -> None:
    report = reports.measured()
    row = replace(
        verdicts.node_served(),
        given_up=GivenUp(20, 3, 310_000.0, 0.0),
        abandoned=Waiting(5, 2_000_000.0),
        dropped=Unanswered(7, 20_000.0),
    )
    left = replace(report, requests=replace(report.requests, served_by=[row]))
    async with dashboard(frame(left), size=(110, 60)) as screen:
        await focus(screen, "requests")
        await screen.press("enter", "end")
        told = "23 clients left without a reply, after 310ms on average; 5 not closed"
        assert screen.row("node 4711", told)
        assert screen.row("node 4711", "7 ended by it without a reply, after 20.0ms on average")


async def test_outgoing_connects_and_their_failures() -> None:
    async with dashboard(frame(reports.measured()), size=(110, 60)) as screen:
        assert screen.row("unix:/run/pg.sock", "4.00/s").endswith("FAILED ENOENT 40")
        assert screen.row("tcp:127.0.0.1:5432", "90.0/s").endswith("  EINPROGRESS 900")
        await focus(screen, "requests")
        await screen.press("end", "up", "enter")
        assert screen.row("failed", "ENOENT 40")


async def test_threads_of_a_target() -> None:
    async with dashboard(frame(reports.measured()), size=(100, 40)) as screen:
        await screen.press("tab", "enter")
        assert "user 93.0 · sys socket 3.0 · runq 2.0" in screen.row("node 4711 ", "user")
        assert "wait poll 100" in screen.row("libuv-worker 4713")


async def test_past_refusals_are_said_in_a_word() -> None:
    emptied = replace(reports.crowded(), depth=reports.listener("", now=0).depth)
    report = replace(reports.busy(), listeners=[emptied])
    async with dashboard(frame(report), size=(80, 24)) as screen:
        assert "REFUSED" in screen.row("/run/app.sock")


async def test_the_verdict_on_a_narrow_screen() -> None:
    async with dashboard(frame(verdicts.spinning())) as screen:
        lines = screen.lines()
        assert lines[1].split("   ")[0] == " NOT THE TRANSPORT"
        assert "app-cpu, critical" in lines[1] and lines[1].endswith("sure 99 %")
        headline = "requests take 930 µs on average: node thread 4711 is 98 % busy, 95 % of"
        assert lines[2] == f"   {headline} that"
        assert lines[3] == "   in its own code"
        transport = "   a free transport would save at most 1.2 % of request time"
        assert lines[4].startswith(transport) and lines[4].endswith("v: fix")
        assert lines[5].startswith(" request ") and lines[6].startswith(" thread node 4711")
        assert "requests" in lines[7]


async def test_a_wide_screen_has_the_whole_headline() -> None:
    async with dashboard(frame(verdicts.spinning()), size=(120, 40)) as screen:
        lines = screen.lines()
        assert lines[1].startswith(" NOT THE TRANSPORT   app-cpu, critical  ")
        assert lines[1].endswith("sure 99 %")
        assert lines[2].startswith(
            "   requests take 930 µs on average: node thread 4711 is 98 % busy"
        )
        assert lines[4].endswith("Enter/v: evidence, fix")
        assert lines[5].startswith(" request ")


async def test_a_headline_of_more_than_two_lines_is_cut_between_words() -> None:
    async with dashboard(frame(verdicts.everything_at_once()), size=(40, 24)) as screen:
        first, second = screen.lines()[2:4]
        assert not first.endswith("…") and second.endswith("…")
        assert len(first) <= 40 and len(second) <= 40
    async with dashboard(frame(verdicts.everything_at_once())) as screen:
        assert "…" not in "".join(screen.lines()[2:4])


async def test_the_screen_keeps_its_shape_from_warming_up_to_a_verdict() -> None:
    async with dashboard(frame(verdicts.warming_up())) as screen:
        lines = screen.lines()
        assert lines[1] == " NOT ENOUGH DATA"
        assert lines[2] == "   warming up: 3 of ~20 requests needed"
        before = lines.index(screen.rule("requests"))
        for kind in (verdicts.healthy, verdicts.spinning, verdicts.unreachable):
            await screen.give(frame(kind()))
            assert screen.lines().index(screen.rule("requests")) == before


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", verdicts.KINDS)
@pytest.mark.parametrize("page", [(), ("v",)])
async def test_every_verdict_and_its_page_fit(
    kind: Callable[[], Report], size: Size, page: Sequence[str]
) -> None:
    async with dashboard(frame(kind()), size=size) as screen:
        await screen.press(*page)
        lines = screen.lines()
        assert max(cell_len(line) for line in lines) <= size[0]
        assert all(line.isprintable() for line in lines)


async def test_v_opens_what_the_verdict_rests_on() -> None:
    async with dashboard(frame(verdicts.spinning()), size=(100, 60)) as screen:
        await screen.press("v")
        title = "verdict (Esc leaves, ↑↓ choose, y copies, r: probes)"
        assert title in screen.lines()[0]
        assert screen.row("NOT THE TRANSPORT · app-cpu, critical · sure 99 %")
        assert screen.row("thread node 4711 is busy 98 % of the time")
        assert screen.row("busy_share 98 %, threshold 80 %")
        assert screen.row("look: see which code its CPU time is spent in")
        assert screen.row("$ sudo perf record -F 99 -g -t 4711")
        await screen.press("v", "escape")
        assert "q quit" in screen.lines()[-1]


async def test_the_verdicts_page_has_runners_up_and_the_other_findings() -> None:
    async with dashboard(frame(verdicts.everything_at_once()), size=(100, 90)) as screen:
        await screen.press("v")
        for words in ("runners-up", "other findings", "critical accept-queue-full", "do: "):
            assert words in screen.text()


async def test_what_this_kernel_cannot_measure_is_beside_the_verdict() -> None:
    report = replace(verdicts.warming_up(), probe=reports.degraded().probe)
    async with dashboard(frame(report), size=(100, 60)) as screen:
        await screen.press("v")
        assert "not measured" in screen.text() and "no BTF" in screen.text()


async def test_y_copies_the_first_remedy_and_says_so() -> None:
    report = verdicts.spinning()
    assert report.verdict is not None
    async with dashboard(frame(report), size=(100, 40)) as screen:
        await screen.press("y")
        assert screen.app.clipboard == ""
        await screen.press("v", "y")
        assert screen.app.clipboard == report.verdict.actions[0].run
        assert "· copied" in screen.lines()[0]
        await screen.give(frame(verdicts.healthy()))
        assert "· copied" not in screen.lines()[0]


async def test_each_remedy_can_be_chosen_and_one_without_a_command_copies_nothing() -> None:
    report = verdicts.spinning()
    assert report.verdict is not None
    actions = report.verdict.actions
    assert [action.run is None for action in actions] == [False, True]
    async with dashboard(frame(report), size=(100, 40)) as screen:
        await screen.press("v")
        assert screen.row("▸ look: ")
        await screen.press("down", "y")
        assert screen.row(f"▸ restart: {actions[1].say[:40]}")
        assert screen.app.clipboard == ""
        assert "· no command to copy" in screen.lines()[0]
        await screen.press("up", "y")
        assert screen.app.clipboard == actions[0].run
        assert "· copied" in screen.lines()[0]


async def test_a_chosen_remedy_is_brought_into_view() -> None:
    async with dashboard(frame(verdicts.everything_at_once()), size=(80, 10)) as screen:
        await screen.press("v")
        assert "▸" not in screen.text()
        await screen.press("down")
        assert "▸" in screen.text()


async def test_nothing_hostile_gets_into_the_clipboard() -> None:
    async with dashboard(frame(verdicts.unreachable("/run/'$(id)\n\x1b[31m.sock"))) as screen:
        await screen.press("v", "y")
        copied = screen.app.clipboard
        assert copied.isprintable() and "namei -l" in copied
        shown = ["bash", "-c", copied.replace("namei -l --", "printf %s")]
        meant = subprocess.run(shown, capture_output=True, check=True).stdout
        assert meant == b"/run/'$(id)\n\x1b[31m.sock"


async def test_enter_opens_the_verdict_when_no_panel_is_focused() -> None:
    async with dashboard(frame(verdicts.spinning())) as screen:
        screen.app.screen.set_focus(None)
        await screen.press("enter")
        assert "verdict (Esc leaves" in screen.lines()[0]


async def test_a_click_on_the_verdict_opens_it() -> None:
    async with dashboard(frame(verdicts.spinning())) as screen:
        await screen.pilot.click(offset=(5, 1))
        await screen.settle()
        assert "verdict (Esc leaves" in screen.lines()[0]


async def test_findings_on_a_tall_screen_and_their_pages() -> None:
    async with dashboard(frame(verdicts.everything_at_once()), size=(120, 70)) as screen:
        assert screen.below("findings").split()[:2] == ["critical", "fd-limit"]
        await focus(screen, "findings")
        await screen.press("home", "down", "enter")
        assert "finding (Esc leaves" in screen.lines()[0]
        assert screen.row("what to do")
        await screen.press("escape", "home", "enter")
        assert "verdict (Esc leaves" in screen.lines()[0]


async def test_no_finding_is_said_in_one_line() -> None:
    async with dashboard(frame(verdicts.healthy()), size=(120, 40)) as screen:
        assert "none: nothing is refused, full, blocked" in screen.below("findings")
    async with dashboard(frame(verdicts.healthy()), size=(80, 24)) as screen:
        assert "findings" not in screen.text() and "connections" not in screen.text()


async def test_connections_against_their_buffers() -> None:
    async with dashboard(frame(verdicts.everything_at_once()), size=(140, 90)) as screen:
        row = screen.row("reader 99", "served")
        assert "STALLED 3.00 s · BLOCKED 3" in row and "213kB" in row and "▕████" in row
        assert screen.row("and 67 more that are less busy")
        await focus(screen, "connections")
        await screen.press("enter")
        assert screen.row("212,992 bytes, set with SO_SNDBUF, does not grow")
        assert screen.row("most since the start", "212,000")
        assert screen.row("peer takes nothing for", "3.00 s")


async def test_the_chain_of_targets_and_who_served_what() -> None:
    report = replace(reports.busy(), requests=verdicts.chain())
    async with dashboard(frame(report), size=(100, 60)) as screen:
        assert screen.row("hop      nginx 812 ×2 → node 4711").endswith("own  300µs of 1.20ms")
        assert screen.row("hop      node 4711").endswith("own      – of  900µs")
        await focus(screen, "requests")
        await screen.press("enter")
        numbers = ["4,000", "400", "900µs", "850µs", "2", "5", "41.0ms", "1"]
        assert screen.row("node 4711 ", "850µs").split()[2:] == numbers


async def test_a_targets_loops_quota_and_who_has_the_cpus() -> None:
    async with dashboard(frame(verdicts.with_cpu(verdicts.spinning())), size=(100, 70)) as screen:
        await focus(screen, "targets")
        await screen.press("enter")
        assert screen.row("node 4711 ", "50.0", "15.5ms", "65.1ms")
        assert screen.row("busy", "100 % of 2 CPUs (user 90.0, system 10.0")
        assert screen.row("periods throttled", "THROTTLED 12 of 100 (12.0 %), 480 ms in all")
        assert screen.row("may run on", "CPU 0-1,3")
        assert screen.row("may not run on", "CPU 2, idle 4.00 % of the time")
        assert screen.row("set by", "sched_setaffinity(2)")
        assert screen.row("clang 99", "44.3ms", "86.1 %")
        assert screen.row("none: idle or CPU quota", "13.9 %")


async def test_descriptors_that_run_out() -> None:
    async with dashboard(frame(verdicts.everything_at_once()), size=(160, 60)) as screen:
        row = screen.row("node --serve")
        assert "0.1 s" in row and "EMFILE 3" in row
        await focus(screen, "targets")
        await screen.press("enter")
        assert screen.row("open files", "1,023 of 1,024, +18.0/s: full in 0.1 s")


async def test_resize_lays_the_screen_out_again() -> None:
    async with dashboard(frame(reports.busy()), size=(200, 60)) as screen:
        await screen.pilot.resize_terminal(80, 24)
        await screen.settle()
        lines = screen.lines()
        assert len(lines) == 24 and "q quit" in lines[-1]
        assert "slow%" not in screen.text() and "verdict:" in lines[1]


async def test_a_click_selects_and_a_double_click_opens() -> None:
    async with dashboard(frame(reports.busy())) as screen:
        row = next(i for i, line in enumerate(screen.lines()) if "/run/app.sock" in line)
        await screen.pilot.click(offset=(5, row + 1))
        await screen.settle()
        assert screen.row("▸").split()[:3] == ["▸", "tcp", "127.0.0.1:9229"]
        await screen.pilot.click(offset=(5, row), times=2)
        await screen.settle()
        assert "listeners: details" in screen.lines()[0]


async def test_the_wheel_scrolls_the_panel_under_it() -> None:
    async with dashboard(frame(reports.busy())) as screen:
        row = next(i for i, line in enumerate(screen.lines()) if "epoll_ctl" in line)
        for _ in range(5):
            await screen.pilot._post_mouse_events([MouseScrollDown], offset=(5, row))
        await screen.settle()
        assert "6–14 of 14" in screen.rule("system calls")


async def test_a_key_at_the_foot_can_be_clicked() -> None:
    async with dashboard(frame(reports.busy())) as screen:
        at = screen.lines()[-1].index("sort")
        await screen.pilot.click(offset=(at, 23))
        await screen.settle()
        assert screen.lines()[-2].endswith("sorted by errors")


async def test_no_colour_carries_a_meaning_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with dashboard(frame(reports.busy(queue=129)), size=(120, 40)) as screen:
        assert screen.app.no_color
        assert "FULL" in screen.row("/run/app.sock")


async def test_q_quits() -> None:
    async with dashboard(frame(reports.busy())) as screen:
        await screen.press("q")
        assert not screen.app.is_running


async def test_ctrl_c_quits_even_from_the_filter_line() -> None:
    async with dashboard(frame(reports.busy())) as screen:
        await screen.press("slash", "a", "ctrl+c")
        assert not screen.app.is_running


@pytest.fixture
def headless(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Dashboard.run
    monkeypatch.setattr(Dashboard, "run", lambda app: run(app, headless=True, size=(80, 24)))


@pytest.mark.usefixtures("headless")
def test_the_end_of_the_feed_ends_the_screen_and_closes_the_feed() -> None:
    feed = ListFeed(frame(reports.busy()))
    feed.give(None)
    run_dashboard(feed)
    assert feed.closed


@pytest.mark.usefixtures("headless")
def test_quitting_closes_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = ListFeed(frame(reports.busy()))
    monkeypatch.setattr(Dashboard, "on_dashboard_arrived", lambda app, message: app.action_leave())
    run_dashboard(feed)
    assert feed.closed


@pytest.mark.usefixtures("headless")
def test_what_the_feed_raised_reaches_the_caller() -> None:
    feed = FailingFeed(KernelCannotError("no-btf", "no BTF", "try another kernel"))
    with pytest.raises(KernelCannotError):
        run_dashboard(feed)
    assert feed.closed


NARROW: Size = (60, 24)


@pytest.mark.parametrize("kind", [reports.busy, reports.measured, reports.hostile])
async def test_a_narrow_screen_drops_whole_columns_and_keys(kind: Callable[[], Report]) -> None:
    async with dashboard(frame(kind()), size=NARROW) as screen:
        lines = screen.lines()
    assert max(map(cell_len, lines)) <= NARROW[0]
    assert lines[-1].endswith("? help") and "q quit" in lines[-1]


async def test_numbers_of_a_narrow_screen_are_whole() -> None:
    async with dashboard(frame(reports.busy()), size=(80, 24)) as screen:
        wide = screen.row("read ", "unix").replace("▸", " ").split()
    async with dashboard(frame(reports.busy()), size=NARROW) as screen:
        narrow = screen.row("read ", "unix").replace("▸", " ").split()
        assert screen.row("/run/app.sock") and screen.row("4711", "1,024")
    assert 4 <= len(narrow) < len(wide) and set(narrow) <= set(wide)


async def test_r_shows_the_probes_and_again_the_verdict() -> None:
    report = verdicts.spinning()
    probes = "tp_btf:sched_switch+sched_wakeup+sys_enter+sys_exit"
    on = replace(reports.measurement("thread_time"), rests_on=probes)
    report = replace(report, probe=replace(report.probe, measurements=[on]))
    async with dashboard(frame(report), size=(60, 30)) as screen:
        await screen.press("v")
        assert "r: probes)" in screen.lines()[0]
        assert "rests on" not in screen.text() and "evidence" in screen.text()
        await screen.press("r")
        assert "rests on" in screen.text() and "what to do" not in screen.text()
        assert all(name in screen.text() for name in probes.split("+")), "a name is broken"
        await screen.press("r")
        assert "rests on" not in screen.text() and screen.row("what to do")


async def test_the_heading_counts_the_living_and_says_who_ended() -> None:
    report = reports.busy()
    first = report.targets[0]
    ended = [replace(first, pid=9000 + n, state="exited", via="fork") for n in range(70)]
    many = replace(report, targets=[first, *ended], targets_exited=75)
    async with dashboard(frame(many), size=(120, 40)) as screen:
        assert f"{first.comm} {first.pid}, 75 exited" in screen.lines()[0]

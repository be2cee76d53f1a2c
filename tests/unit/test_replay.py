"""Replaying: the frames of a live screen, at whatever time is asked for, without a kernel."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import AsyncIterator, Iterator, List

import pytest

from tests.unit import recordings, samples
from udsprobe.cli import main
from udsprobe.commands.live.player import RecordingPlayer
from udsprobe.commands.options.moments import moment_unix_s
from udsprobe.errors import UsageError
from udsprobe.recording import open_recording
from udsprobe.reporting import Reporter
from udsprobe.views.dashboard import Frame
from udsprobe.views.dashboard.feed import Moment
from udsprobe.views.dashboard.reader import Reader
from udsprobe.views.dashboard.replay import ReplayDashboard
from udsprobe.views.dashboard.timeline import line, state
from udsprobe.views.documents.report_document import json_line, json_text

COUNT = 140
FINDINGS = (20, 21, 90)
START = recordings.START_UNIX_S


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "a"
    recordings.recorded(path, COUNT, findings=FINDINGS)
    return path


@pytest.fixture(scope="module")
def live() -> List[Frame]:
    """What a live screen was fed with."""
    taken = list(recordings.service(COUNT))
    reporter = Reporter(samples.observation(), taken[0])
    return [Frame(reporter.interval(sample), reporter.window()) for sample in taken[1:]]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def player(path: Path) -> Iterator[RecordingPlayer]:
    with open_recording(str(path)) as recording:
        yield RecordingPlayer(recording, Clock())


def shown(player: RecordingPlayer) -> Frame:
    frame = player.next()
    assert frame is not None and frame.moment is not None
    return frame


def second(frame: Frame) -> int:
    assert frame.moment is not None
    return round(frame.moment.at - START)


def test_every_frame_is_that_of_the_live_screen(player: RecordingPlayer, live: List[Frame]) -> None:
    for number, frame in enumerate(live):
        if number:
            player.step(1)
        seen = shown(player)
        assert (seen.interval, seen.window) == (frame.interval, frame.window)
        assert number == 0 or seen.before is None


def test_after_a_jump_the_frame_is_that_of_the_live_screen(
    player: RecordingPlayer, live: List[Frame]
) -> None:
    shown(player)
    for text, place in (("+100s", 100), ("+30s", 30), ("-5s", 134), ("+1s", 1), ("-0.4s", 138)):
        player.go_to(text)
        seen = shown(player)
        assert second(seen) == place
        frame = live[place - 1]
        assert (seen.interval, seen.window) == (frame.interval, frame.window)
        assert seen.before is not None
        assert [each.window for each in seen.before] == [
            each.interval.window for each in live[max(0, place - 61) : place - 1]
        ]


def test_keys_of_time(player: RecordingPlayer) -> None:
    assert second(shown(player)) == 1
    player.step(1)
    seen = shown(player)
    assert second(seen) == 2 and seen.moment is not None and not seen.moment.playing
    player.skip(60)
    assert second(shown(player)) == 62
    player.skip(-600)
    assert second(shown(player)) == 1
    player.step(10_000)
    assert second(shown(player)) == COUNT - 1
    player.toggle()
    seen = shown(player)
    assert second(seen) == 1 and seen.moment is not None and seen.moment.playing


def test_from_finding_to_finding(player: RecordingPlayer) -> None:
    shown(player)
    for direction, place in ((1, 20), (1, 90), (-1, 20)):
        player.next_finding(direction)
        assert second(shown(player)) == place
    player.next_finding(-1)
    seen = shown(player)
    assert second(seen) == 20 and seen.moment is not None
    assert seen.moment.note == "no earlier finding"
    assert [round(at - START) for at, _ in seen.moment.findings] == [20, 90]


def test_what_is_no_time_is_said(player: RecordingPlayer) -> None:
    shown(player)
    player.go_to("yesterday")
    seen = shown(player)
    assert second(seen) == 1 and seen.moment is not None and "not a time" in seen.moment.note


def test_playing_goes_on_by_the_clock(path: Path) -> None:
    clock = Clock()
    with open_recording(str(path)) as recording:
        player = RecordingPlayer(recording, clock)
        assert second(shown(player)) == 1
        clock.now_s = 1.0
        assert second(shown(player)) == 2
        for _ in range(5):
            player.faster(1)
        assert second(shown(player)) == 2  # at 60×, at once
        clock.now_s = 1.5
        assert second(shown(player)) == 32
        clock.now_s = 60.0
        seen = shown(player)
        assert second(seen) == COUNT - 1
        assert seen.moment is not None and not seen.moment.playing


def test_closing_ends_it(player: RecordingPlayer) -> None:
    shown(player)
    player.step(1)
    player.close()
    assert player.next() is None


@asynccontextmanager
async def screen(path: Path) -> AsyncIterator[ReplayDashboard]:
    with open_recording(str(path)) as recording:
        player = RecordingPlayer(recording, Clock())
        reader = Reader(player)
        reader.start()
        app = ReplayDashboard(reader, 1.0, player)
        try:
            async with app.run_test(size=(100, 30)) as pilot:
                app.pilot = pilot  # type: ignore[attr-defined]
                yield app
        finally:
            reader.close()
        assert reader.failure is None


async def press(app: ReplayDashboard, clock: str, *keys: str) -> str:
    """Press keys and wait until the title shows this clock."""
    pilot = app.pilot  # type: ignore[attr-defined]
    await pilot.press(*keys)
    for _ in range(600):
        title = app.screen_stack[0].query_one("#title").render_line(0).text
        if title.rstrip().endswith(clock):
            return str(app.screen_stack[0].query_one("#timeline").render_line(0).text)
        await asyncio.sleep(0.05)
    raise AssertionError(f"{title} never said {clock}")


def clock_at(seconds: int) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(START + seconds, tz=timezone.utc).strftime("%H:%M:%S")


async def test_the_screen_with_its_time_line(path: Path) -> None:
    async with screen(path) as app:
        assert "●" in await press(app, clock_at(1))
        assert "2 findings" in await press(app, clock_at(20), "n")
        await press(app, clock_at(90), "n")
        assert "no later finding" in await press(app, clock_at(90), "n")
        await press(app, clock_at(20), "N")
        await press(app, clock_at(19), "left")
        await press(app, clock_at(79), "right_square_bracket")
        await press(app, clock_at(100), "g", *"+100s", "enter")
        await press(app, clock_at(40), "left_square_bracket")
        await press(app, clock_at(41), "right")


def moment(**changes: object) -> Moment:
    whole = Moment(
        50.0, 0.0, 100.0, "00:00:50", "00:00:00", "00:01:40", 2.0, True, ((90.0, "critical"),)
    )
    return whole._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [20, 80, 200])
def test_the_time_line_fits_and_marks_findings(width: int) -> None:
    drawn = line(moment(), width)
    assert len(drawn) <= width
    if width >= 80:
        bar = drawn[drawn.index("━") : drawn.rindex("─") + 1]
        assert bar.index("●") == int(0.5 * len(bar))
        assert bar.index("▲") == int(0.9 * len(bar))


def test_the_time_line_keeps_its_width_and_escapes_notes() -> None:
    assert line(moment(note="\x1b[31m"), 80).isprintable()
    assert line(moment(note="x"), 80).index("●") == line(moment(), 80).index("●")
    assert state(moment()) == "▶ replay 2× · 00:00:50 "
    assert state(moment(playing=False)) == "‖ PAUSED · 00:00:50 "


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("+10m", 600.0),
        ("-5s", 3595.0),
        ("2026-11-30T00:53:30", 9.75),
        ("2026-11-30T01:53:30+01:00", 9.75),
        ("2026-11-30T00:53:30Z", 9.75),
        ("00:53:30", 9.75),
        ("0:54", 39.75),
        ("00:10", 83799.75),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert moment_unix_s(text, START, START + 3600) == pytest.approx(START + seconds)


@pytest.mark.parametrize("text", ["", "25:00", "12", "+", "+5x", "now", "2026-13-01", "00:61"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        moment_unix_s(text, START, START + 3600)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_without_a_terminal_it_prints_what_attach_would(
    path: Path, live: List[Frame], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = live[-1].window
    assert answer(capsys, "replay", str(path), "--json") == json_text(whole)
    assert answer(capsys, "report", str(path), "--json") == json_text(whole)
    lines = "".join(json_line(frame.interval) for frame in live)
    assert answer(capsys, "replay", str(path), "--jsonl") == lines
    plain = answer(capsys, "replay", str(path))
    assert "── system calls" in plain and "2 min 19 s" in plain
    assert answer(capsys, "replay", str(path), "--plain") == plain
    assert answer(capsys, "report", str(path)) == plain


def test_a_part_of_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = answer(capsys, "report", str(path), "--json", "--from", "+10s", "--to", "00:53:51")
    assert json.loads(out)["window"] == {
        "start": "2026-11-30T00:53:30.250+00:00",
        "duration_s": 20.0,
        "is_first": False,
    }


@pytest.mark.parametrize("command", ["replay", "report"])
def test_a_file_that_is_none_is_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("no recording")
    assert main([command, str(tmp_path / "a")]) == 6
    err = capsys.readouterr().err
    assert err.startswith("udsprobe: error[recording-foreign]") and err.count("\n") == 1


IMPORTS = """
import sys
from udsprobe.cli import main
code = main([sys.argv[1], sys.argv[2], "--output", "/dev/null"])
from udsprobe.views.dashboard import replay
from udsprobe.commands.live import player
bad = [name for name in sys.modules if name.startswith(("udsprobe.kernel", "ctypes"))]
sys.exit(code or ", ".join(bad) or 0)
"""


@pytest.mark.parametrize("command", ["replay", "report"])
def test_no_kernel_is_imported(path: Path, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, command, str(path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")

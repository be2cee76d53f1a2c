"""The whole demo: server, udsprobe attached to it, load; all gone at the end.

The load begins when udsprobe says that every probe is live, and udsprobe is
told to end when the load is over: its window holds every request, and its
report still sees the server's listener. Should this process be killed, the
server's standard input closes, and udsprobe ends because its target does.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Dict, Iterator, List, Optional

READY_POLL_S = 0.02
GRACE_S = 5.0
TOLD_S = 1.0


class Show:
    """One demonstration.

    Args:
        seconds: how long the load lasts.
        count: send so many requests exactly, instead.
        view: `plain`, `json` or `jsonl`; None for what fits the terminal.
    """

    def __init__(self, seconds: float, count: Optional[int], view: Optional[str]) -> None:
        self.seconds = seconds
        self.count = count
        self.view = view

    def run(self) -> int:
        """Show it; returns udsprobe's exit code."""
        with ExitStack() as stack:
            interrupted = stack.enter_context(_interruption())
            server = stack.enter_context(_part("serve"))
            place = _said(server)
            if not place:
                return server.wait()  # It has said why on standard error.
            ready = Path(str(place["socket"])).parent / "ready"
            attach = stack.enter_context(self._attach(str(place["pid"]), ready))
            truth: Dict[str, object] = {}
            if _is_ready(ready, attach, interrupted):
                with _part("load", *self._load_options(str(place["socket"]))) as load:
                    told = _wait_for_end(attach, load, interrupted)
                    truth["load"] = _ends(load)
                code = _exit_code(attach, told)
            else:
                code = _exit_code(attach, True)
            truth["server"] = _ends(server)
        _tell(truth)
        return code

    @contextmanager
    def _attach(self, pid: str, ready: Path) -> Iterator[subprocess.Popen[bytes]]:
        view = [f"--{self.view}"] if self.view else []
        command = [sys.executable, "-I", "-m", "udsprobe", "attach", "--pid", pid]
        with subprocess.Popen([*command, "--ready-file", str(ready), *view]) as attach:
            try:
                yield attach
            finally:
                _stop(attach, signal.SIGINT)

    def _load_options(self, socket: str) -> List[str]:
        bound = ["--count", str(self.count)] if self.count else ["--seconds", str(self.seconds)]
        return ["--socket", socket, *bound]


@contextmanager
def _part(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server or load, out of reach of the terminal's Ctrl-C: they end when told to."""
    with subprocess.Popen(
        [sys.executable, "-I", "-m", "udsprobe.demo", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as part:
        try:
            yield part
        finally:
            _stop(part, signal.SIGTERM)


@contextmanager
def _interruption() -> Iterator[int]:
    """A descriptor that becomes readable at SIGINT or SIGTERM, which do nothing else."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: None)
    try:
        yield reader
    finally:
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.close(reader)
        os.close(writer)


def _is_ready(ready: Path, attach: subprocess.Popen[bytes], interrupted: int) -> bool:
    while not ready.exists():
        if attach.poll() is not None or select.select([interrupted], [], [], READY_POLL_S)[0]:
            return False
    return True


def _wait_for_end(
    attach: subprocess.Popen[bytes], load: subprocess.Popen[bytes], interrupted: int
) -> bool:
    """Wait for an exit or an interruption; True when udsprobe needs no telling."""
    attach_exits, load_exits = os.pidfd_open(attach.pid), os.pidfd_open(load.pid)
    happened = select.select([attach_exits, load_exits, interrupted], [], [])[0]
    os.close(attach_exits)
    os.close(load_exits)
    return attach_exits in happened or interrupted in happened


def _said(part: subprocess.Popen[bytes]) -> Dict[str, object]:
    """The next JSON line of a part; empty when it ended without one."""
    assert part.stdout is not None
    line = part.stdout.readline()
    said: Dict[str, object] = json.loads(line) if line else {}
    return said


def _ends(part: subprocess.Popen[bytes]) -> Dict[str, object]:
    assert part.stdin is not None
    part.stdin.close()
    return _said(part)


def _exit_code(attach: subprocess.Popen[bytes], told: bool) -> int:
    """Let udsprobe report and end.

    Args:
        told: the terminal's Ctrl-C reached it too. A second signal could disturb its
            report, so it gets one only when it does not end.
    """
    if told:
        with suppress(subprocess.TimeoutExpired):
            return attach.wait(TOLD_S)
    _stop(attach, signal.SIGINT)
    return attach.wait()


def _stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is not None:
        return
    process.send_signal(how)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _tell(truth: Dict[str, object]) -> None:
    if truth.get("load"):
        print(f"demo's own count: {json.dumps(truth)}", file=sys.stderr)

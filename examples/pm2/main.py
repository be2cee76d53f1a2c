"""PM2's two Unix sockets, RPC for commands and PUB for logs and events, while both are used."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from examples.frame import Observation, Options, Result, run, table
from examples.frame.attached import attached
from examples.frame.npm import node_modules
from tests.patience import PATIENCE_S
from tests.scenarios.bench import Bench, Process
from tests.scenarios.programs import program

HERE = Path(__file__).resolve().parent
EVERY_MS = 10
APP = "talker"
Commands = Tuple[Tuple[str, ...], ...]
# Each is a process of its own that asks the daemon.
# Two requests each; a verdict takes 20 in all.
LISTS: Commands = (("list",),) * 4
BEFORE_LOGS: Commands = (("start", str(HERE / "app.js"), "--name", APP), *LISTS)
AFTER_LOGS: Commands = (("sendSignal", "SIGUSR2", APP),)
COMMANDS = len(BEFORE_LOGS) + len(("logs",)) + len(AFTER_LOGS)


class Pm2:
    """A daemon with a home of its own. It detaches from whoever started it: `end` ends it."""

    def __init__(self, bench: Bench, lines: int) -> None:
        self._bench = bench
        self.home = bench.folder / "pm2"
        self._cli = str(node_modules(HERE) / "pm2/bin/pm2")
        # Without HOME it finds nothing of the user's; without the check it asks no server.
        self._env = {"PM2_HOME": str(self.home), "HOME": str(bench.folder)}
        self._env.update(PM2_DISABLE_VERSION_CHECK="true", PATH=os.environ["PATH"])
        self._env.update(LINES=str(lines), EVERY_MS=str(EVERY_MS))
        bench.afterwards(self._end)
        self.do("ping")
        self.pid = int((self.home / "pm2.pid").read_text())

    @property
    def rpc(self) -> str:
        return str(self.home / "rpc.sock")

    @property
    def pub(self) -> str:
        return str(self.home / "pub.sock")

    def begin(self, *words: str) -> Process:
        """A command of PM2 that goes on."""
        return self._bench.start([program("node"), self._cli, *words], words[0], env=self._env)

    def do(self, *words: str) -> None:
        """A command of PM2, to its end.

        Raises:
            RuntimeError: it failed.
        """
        command = self.begin(*words)
        if command.popen.wait(PATIENCE_S):
            raise RuntimeError(f"pm2 {words[0]}: {command.log.read_text()[-2000:]}")

    def _end(self) -> None:
        self.do("kill")


def clients_of(path: str) -> int:
    """Connections to a Unix listener, as the kernel lists them: state 03, the listener's path."""
    text = Path("/proc/net/unix").read_text(errors="replace")  # of names that are not UTF-8
    return len(re.findall(rf"^\w+:(?: \w+){{4}} 03 +\d+ {re.escape(path)}$", text, re.MULTILINE))


def talk(bench: Bench, pm2: Pm2, lines: int) -> Process:
    """Start an application, follow its log, have it write; `pm2 logs` when it has every line."""
    for words in BEFORE_LOGS:
        pm2.do(*words)
    logs = pm2.begin("logs", APP, "--raw", "--lines", "0")
    bench.wait_until(lambda: clients_of(pm2.pub) == 1, "pm2 logs listens to PUB", logs)
    for words in AFTER_LOGS:
        pm2.do(*words)
    last = f"line {lines} of {lines}\n"
    bench.wait_until(lambda: last in logs.log.read_text(), "the last line is in the log", logs)
    return logs


def measure(options: Options) -> Result:
    """One daemon, one application."""
    lines = 100 if options.quick else 1000
    with Bench("unix") as bench:
        pm2 = Pm2(bench, lines)
        with attached([pm2.pid], bench.folder) as found:
            logs = talk(bench, pm2, lines)
        shown = [line for line in logs.log.read_text().splitlines() if line.startswith("line ")]
    seen = found[0]
    wrong = _wrong(seen, pm2, len(shown), lines)
    return Result("\n".join([_sockets(seen, pm2, lines), _transports(seen), _verdict(seen)]), wrong)


def _sockets(seen: Observation, pm2: Pm2, lines: int) -> str:
    requests = seen.served([pm2.pid])
    sent = sum(row["bytes_out"] for row in connections(seen, pm2.pub))
    carried = {
        pm2.rpc: f"{COMMANDS} commands, {requests} requests",
        pm2.pub: f"{lines:,} lines, {sent / lines:.0f} bytes each, no request",
    }
    rows: List[Sequence[object]] = []
    for name, address in (("RPC", pm2.rpc), ("PUB", pm2.pub)):
        listener = seen.listener(address)
        wait = listener["wait_us"]["max"]
        rows.append([name, carried[address], listener["accepted"], seen.queue(address), wait])
    head = ["socket", "carried", "connections", "queue: deepest/limit", "longest wait in it, µs"]
    return table(head, rows)


def connections(seen: Observation, address: str) -> List[Dict[str, Any]]:
    """Those that were accepted at an address and are open."""
    rows: List[Dict[str, Any]] = seen.report["connections"]
    return [row for row in rows if row["local"] == address and row["role"] == "served"]


def by_transport(seen: Observation, what: str) -> Dict[str, int]:
    """`calls` or `bytes` of the daemon and its application."""
    sums = {"unix": 0, "tcp": 0, "udp": 0, "other": 0}
    for row in seen.report["syscalls"]:
        sums[row["transport"]] += row[what] or 0
    return sums


def _transports(seen: Observation) -> str:
    calls, moved = by_transport(seen, "calls"), by_transport(seen, "bytes")
    head = ["daemon and application, by transport", "system calls", "bytes"]
    return table(head, [[name, calls[name], moved[name]] for name in calls])


def _verdict(seen: Observation) -> str:
    return f"Verdict: {seen.cause}. {seen.summary}\n"


def _wrong(seen: Observation, pm2: Pm2, shown: int, lines: int) -> List[str]:
    accepted = {name: seen.listener(name).get("accepted") for name in (pm2.rpc, pm2.pub)}
    wrong: List[str] = []
    if shown != lines:
        wrong.append(f"{lines} lines written, pm2 logs shows {shown}")
    if accepted[pm2.pub] != 1 or len(connections(seen, pm2.pub)) != 1:
        wrong.append(f"one pm2 logs, PUB accepted {accepted[pm2.pub]}")
    # Every command asks whether the daemon is there, then connects again.
    if accepted[pm2.rpc] != 2 * COMMANDS:
        wrong.append(f"{COMMANDS} commands, RPC accepted {accepted[pm2.rpc]}")
    if by_transport(seen, "calls")["tcp"]:
        wrong.append("PM2 used TCP")
    return wrong


if __name__ == "__main__":
    sys.exit(run(HERE, __doc__ or "", ("node", "npm"), measure))

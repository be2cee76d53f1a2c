"""Processes as /proc shows them: names, threads, descriptors, limits, relatives.

Knows the text formats under /proc and that everything there can vanish between
two reads, belong to somebody else, or be named by somebody hostile. A process
that is gone is `None`; so is what /proc hides from us, never an empty answer.
Knows nothing of selectors, listeners or samples other than `TargetReading`.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from udsprobe.printable import printable
from udsprobe.sample import OpenFiles, TargetReading

# include/linux/sched.h; the flags of /proc/PID/stat are these, since 2.6.
_PF_KTHREAD = 0x00200000
_CMDLINE_MAX_BYTES = 4096
# Of a thread: time on CPUs, time waiting for one, ns; how often it ran.
_SCHEDSTAT_WORDS = 3
_DIGITS_MAX = 20  # of a u64
# The note that Go's linker writes, and how far into a file Go looks for it itself
# (cmd/internal/buildid, readSize): size of the name, size of the id, type, name.
_GO_BUILD_ID = re.compile(rb"\x04\0\0\0.{4}\x04\0\0\0Go\0\0", re.DOTALL)
_PROGRAM_START_BYTES = 32 * 1024


@dataclass(frozen=True)
class Process:
    """One thread group, from /proc/PID/stat.

    Attributes:
        comm: of its leader, escaped; `comm_raw` as the kernel has it.
        state: one letter, `R`, `S`, `Z` …
        start_ticks: clock ticks after boot; with the PID it names a process
            for good, because a reused PID starts later.
        nice: of its first thread.
    """

    pid: int
    ppid: int
    comm: str
    comm_raw: bytes
    state: str
    threads: int
    start_ticks: int
    kernel_thread: bool
    nice: int = 0

    @property
    def ended(self) -> bool:
        """A zombie or on its way out: it holds nothing any more."""
        return self.state in "ZXx"


@dataclass(frozen=True)
class Session:
    """What sessions share the CPUs out by (sched(7), autogroup): its name, and its nice value."""

    name: str
    nice: int


@dataclass(frozen=True)
class Owners:
    """Who holds which socket.

    Attributes:
        by_inode: socket inode → PIDs, ascending, for the sockets asked about.
        hidden: processes whose descriptors /proc does not show us.
    """

    by_inode: Mapping[int, Tuple[int, ...]]
    hidden: FrozenSet[int]

    def of(self, inode: int) -> Optional[Tuple[int, ...]]:
        """PIDs that hold the socket; None when nobody we may look into does.

        A listener always has an owner: none found means it is hidden.
        """
        found = self.by_inode.get(inode, ())
        return None if self.hidden and not found else found


class Procfs:
    """A mounted procfs.

    Args:
        root: where it is mounted.
    """

    def __init__(self, root: str = "/proc") -> None:
        self._root = root

    def pids(self) -> Tuple[int, ...]:
        """Thread groups that exist now, ascending."""
        return tuple(sorted(int(name) for name in os.listdir(self._root) if name.isdigit()))

    def process(self, pid: int) -> Optional[Process]:
        """The process, or None when there is none with this PID."""
        raw = self._read(pid, "stat")
        return _parse_stat(raw) if raw else None

    def session(self, pid: int) -> Optional[Session]:
        """That of a process; None when gone, hidden, or of no session."""
        # kernel/sched/autogroup.c, proc_sched_autogroup_show_task: "/autogroup-25 nice 0".
        words = (self._read(pid, "autogroup") or b"").split()
        nice = _signed(words[2]) if len(words) == 3 else None
        return None if nice is None else Session(printable(words[0]), nice)

    def processes(self) -> Iterator[Process]:
        """Every process, kernel threads and zombies included."""
        for pid in self.pids():
            found = self.process(pid)
            if found is not None:
                yield found

    def thread_group(self, tid: int) -> Optional[int]:
        """PID of the process that thread `tid` belongs to; None when it is gone.

        /proc/TID answers for any thread, though it lists only leaders.
        """
        # Not splitlines(): a comm may hold `\r`, and `Tgid:` behind it.
        for line in (self._read(tid, "status") or b"").split(b"\n"):
            if line.startswith(b"Tgid:"):
                return _number(line[5:].strip())
        return None

    def cmdline(self, pid: int) -> Optional[str]:
        """The command line, escaped, arguments joined by spaces.

        `[comm]` when it has none; None when the process is gone.
        """
        raw = self._read(pid, "cmdline", _CMDLINE_MAX_BYTES)
        if raw is None:
            return None
        if raw.strip(b"\0 "):
            return printable(raw.rstrip(b"\0").replace(b"\0", b" "))
        process = self.process(pid)
        return f"[{process.comm}]" if process else None

    def language(self, pid: int) -> Optional[str]:
        """What its program is written in: `go` where Go's build id says so.

        None: another language, not told (`-ldflags=-buildid=`), gone or hidden.
        """
        start = self._read(pid, "exe", _PROGRAM_START_BYTES) or b""
        is_go = start.startswith(b"\x7fELF") and _GO_BUILD_ID.search(start)
        return "go" if is_go else None

    def tracer(self, pid: int) -> Optional[int]:
        """Who traces its first thread; 0: nobody; None when gone or hidden."""
        for line in (self._read(pid, "status") or b"").split(b"\n"):
            if line.startswith(b"TracerPid:"):
                return _number(line.split()[-1])
        return None

    def executable_name(self, pid: int) -> Optional[bytes]:
        """Last part of the path of its executable; None when hidden or none."""
        try:
            path = os.readlink(os.fsencode(f"{self._root}/{pid}/exe"))
        except OSError:
            return None
        deleted = b" (deleted)"
        return os.path.basename(path[: -len(deleted)] if path.endswith(deleted) else path)

    def thread_ids(self, pid: int) -> List[int]:
        """Of its living threads; empty when it is gone or hidden."""
        try:
            return [int(tid) for tid in os.listdir(f"{self._root}/{pid}/task")]
        except OSError:
            return []

    def busy_ns(self, pid: int) -> Optional[int]:
        """CPU time of its living threads and their waits for a CPU; None when it is not told."""
        total_ns = 0
        tids = self.thread_ids(pid)
        if not tids:
            return None
        for tid in tids:
            words = (self._read(pid, f"task/{tid}/schedstat") or b"").split()
            if len(words) < _SCHEDSTAT_WORDS:
                return None
            total_ns += int(words[0]) + int(words[1])
        return total_ns

    def wanted_cpu_ns(self, pid: int) -> Optional[int]:
        """CPU time of the process so far, in steps of a clock tick, and how long its first thread
        waited for a CPU; None when it is gone. Two reads, however many threads it has."""
        raw = self._read(pid, "stat")
        if not raw:
            return None
        words = raw[raw.rfind(b")") + 1 :].split()[11:13]  # utime, stime
        ticks = [_number(word) for word in words]
        if len(ticks) < 2 or None in ticks:
            return None
        waited = (self._read(pid, "schedstat") or b"").split()[1:2]
        waited_ns = sum(_number(word) or 0 for word in waited)
        tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        return sum(tick or 0 for tick in ticks) * tick_ns + waited_ns

    def fds_open(self, pid: int) -> Optional[int]:
        """How many descriptors are open; None when gone or hidden.

        Since Linux 6.2 the size of /proc/PID/fd is their number, for anyone
        (f1f1f2569901 "proc: report open files as size in stat() for
        /proc/pid/fd"); before it is 0 and they have to be counted.
        """
        path = f"{self._root}/{pid}/fd"
        try:
            size = os.stat(path).st_size
            if size > 0:
                return size
            with os.scandir(path) as entries:
                return sum(1 for _ in entries)
        except OSError:
            return None

    def fds_limit(self, pid: int) -> Optional[int]:
        """Soft RLIMIT_NOFILE; None when gone, hidden or unlimited."""
        for line in (self._read(pid, "limits") or b"").split(b"\n"):
            words = line.split()
            if line.startswith(b"Max open files") and len(words) > 3:
                return _number(words[3])
        return None

    def socket_fds(self, pid: int) -> Optional[Dict[int, int]]:
        """Descriptor → socket inode; None when gone or hidden.

        Root may list the descriptors of a process with more capabilities than
        itself, and not read one of them: that is hidden too.
        """
        found: Dict[int, int] = {}
        try:
            for name in os.listdir(f"{self._root}/{pid}/fd"):
                inode = self._socket_inode(pid, name)
                if inode is not None:
                    found[int(name)] = inode
        except OSError:
            return None
        return found

    def hides_descriptors(self, pid: int) -> bool:
        """Whether a process has descriptors that we may not see.

        To ask when `socket_fds` says None: a kernel thread and a zombie have
        none, and of a process that is gone there is nothing to hide.
        """
        process = self.process(pid)
        return process is not None and not process.kernel_thread and not process.ended

    def holds(self, pid: int, fd: int, inode: int) -> bool:
        """Whether descriptor `fd` of the process is the socket `inode`."""
        try:
            return self._socket_inode(pid, str(fd)) == inode
        except OSError:
            return False

    def _socket_inode(self, pid: int, fd: str) -> Optional[int]:
        try:
            link = os.readlink(f"{self._root}/{pid}/fd/{fd}")
        except FileNotFoundError:  # closed since it was listed
            return None
        return int(link[8:-1]) if link.startswith("socket:[") else None

    def tcp_table(self, pid: int, name: str) -> bytes:
        """`/proc/PID/net/NAME`, `tcp` or `tcp6`, of its network namespace; empty when gone."""
        try:
            return Path(f"{self._root}/{pid}/net/{name}").read_bytes()
        except OSError:
            return b""

    def owners(self, inodes: Iterable[int], pids: Optional[Iterable[int]] = None) -> Owners:
        """Which of `pids` (default: every process) hold the sockets `inodes`."""
        wanted = frozenset(inodes)
        found: Dict[int, List[int]] = {inode: [] for inode in wanted}
        hidden: Set[int] = set()
        for pid in sorted(set(self.pids() if pids is None else pids)):
            held = self.socket_fds(pid)
            if held is None and self.hides_descriptors(pid):
                hidden.add(pid)
            for inode in wanted.intersection((held or {}).values()):
                found[inode].append(pid)
        return Owners({inode: tuple(who) for inode, who in found.items()}, frozenset(hidden))

    def namespace_pids(self, pid: int) -> List[int]:
        """Its ids from this procfs' PID namespace down to its own; empty when it is gone."""
        for line in (self._read(pid, "status") or b"").splitlines():
            if line.startswith(b"NSpid:"):
                return [int(number) for number in line.split()[1:]]
        return []

    def open_namespace(self, pid: int, kind: str) -> int:
        """A descriptor of its namespace, `pid`, `mnt` …. Raises OSError: gone or hidden."""
        return os.open(f"{self._root}/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)

    def netns(self, pid: int) -> Optional[int]:
        """Inode number of its network namespace; None when gone or hidden."""
        try:
            return os.stat(f"{self._root}/{pid}/ns/net").st_ino
        except OSError:
            return None

    def netns_of_this_thread(self) -> int:
        """Inode number of the calling thread's network namespace."""
        return os.stat(f"{self._root}/thread-self/ns/net").st_ino

    def descendants(
        self, pids: Iterable[int], among: Optional[Iterable[Process]] = None
    ) -> Set[int]:
        """Children, grandchildren … of `pids`, without `pids` themselves.

        Args:
            among: all processes, where they were read already.
        """
        tree: Dict[int, List[int]] = {}
        for process in self.processes() if among is None else among:
            if not process.ended:
                tree.setdefault(process.ppid, []).append(process.pid)
        roots = set(pids)
        reached: Set[int] = set()
        waiting = list(roots)
        while waiting:
            fresh = [pid for pid in tree.get(waiting.pop(), ()) if pid not in reached]
            reached.update(fresh)
            waiting.extend(fresh)
        return reached - roots

    def ancestors(self, pid: int) -> Tuple[int, ...]:
        """Parent, grandparent … up to the first process of this PID namespace."""
        line: List[int] = []
        process = self.process(pid)
        while process is not None and process.ppid and process.ppid not in line:
            line.append(process.ppid)
            process = self.process(process.ppid)
        return tuple(line)

    def cgroups(self, pid: int) -> Dict[str, str]:
        """Controllers → cgroup path, escaped; the key of cgroup v2 is empty."""
        paths = self.cgroup_paths(pid).items()
        return {printable(os.fsencode(name)): printable(os.fsencode(path)) for name, path in paths}

    def cgroup_paths(self, pid: int) -> Dict[str, str]:
        """The same as file names, undecodable bytes kept as `os.fsdecode` keeps them."""
        paths: Dict[str, str] = {}
        # A control group may have `\r` in its name, and no newline.
        for line in (self._read(pid, "cgroup") or b"").split(b"\n"):
            parts = line.split(b":", 2)
            if len(parts) == 3:
                paths[os.fsdecode(parts[1])] = os.fsdecode(parts[2])
        return paths

    def cgroup(self, pid: int) -> Optional[str]:
        """The cgroup that says where it runs, escaped; None when gone or hidden.

        That of v2; of systemd's hierarchy where v2 has it at the root; of any v1
        controller where that has too.
        """
        paths = self.cgroups(pid)
        wanted = (paths.get(""), paths.get("name=systemd"), *paths.values())
        return next((path for path in wanted if path and path != "/"), "/" if paths else None)

    def target(self, pid: int, via: str) -> Optional[TargetReading]:
        """Who it is; None when no such process runs. Descriptors and cgroup are not looked at.

        Args:
            via: `selector` or `fork`, passed on.
        """
        process = self.process(pid)
        if process is None or process.ended:
            return None
        return TargetReading(
            pid=pid,
            comm=process.comm,
            cmdline=self.cmdline(pid),
            threads=process.threads,
            state="running",
            fds_open=None,
            fds_limit=None,
            via=via,
            start_ticks=process.start_ticks,
            parent=process.ppid,
            language=self.language(pid),
        )

    def open_files(self) -> Optional[OpenFiles]:
        """Open files of the host (`fs.file-nr`); None when hidden."""
        try:
            with open(f"{self._root}/sys/fs/file-nr", encoding="ascii") as numbers:
                in_use, free, limit = map(int, numbers.read().split())
        except (OSError, ValueError):
            return None
        return OpenFiles(open=in_use - free, max=limit)

    def _read(self, pid: int, name: str, size: int = 65536) -> Optional[bytes]:
        try:
            descriptor = os.open(f"{self._root}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(descriptor, size)
        except OSError:  # ESRCH: it ended after the open
            return None
        finally:
            os.close(descriptor)


def _parse_stat(raw: bytes) -> Optional[Process]:
    # comm may hold spaces, parentheses and newlines: the last `)` ends it.
    start, end = raw.find(b"("), raw.rfind(b")")
    fields = raw[end + 1 :].split()
    if start < 0 or end < start or len(fields) < 20:
        return None
    comm = raw[start + 1 : end]
    pid, *numbers = (_number(field) for field in (raw[:start].strip(), *fields[1:20]))
    ppid, flags, threads, started = numbers[0], numbers[5], numbers[16], numbers[18]
    if pid is None or ppid is None or flags is None or threads is None or started is None:
        return None
    return Process(
        pid=pid,
        ppid=ppid,
        comm=printable(comm),
        comm_raw=comm,
        state=fields[0].decode("ascii", "replace"),
        threads=threads,
        start_ticks=started,
        kernel_thread=bool(flags & _PF_KTHREAD),
        nice=_signed(fields[16]) or 0,
    )


def _number(text: bytes) -> Optional[int]:
    return int(text) if text.isdigit() and len(text) <= _DIGITS_MAX else None


def _signed(text: bytes) -> Optional[int]:
    number = _number(text[1:] if text.startswith(b"-") else text)
    return -number if number is not None and text.startswith(b"-") else number


def same_file(path: bytes, device: int, inode: int) -> bool:
    """Whether `path` leads, for us, to the socket file `inode` on `device`.

    Args:
        device: the kernel's own dev_t (12 bits minor from 20: major << 20).
        inode: its low 32 bits, which is what sock_diag reports.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return False
    kernel_device = os.major(found.st_dev) << 20 | os.minor(found.st_dev)
    return (
        stat.S_ISSOCK(found.st_mode)
        and found.st_ino & 0xFFFFFFFF == inode
        and kernel_device == device
    )

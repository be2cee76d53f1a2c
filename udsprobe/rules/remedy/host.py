"""Remedies on the host around a server: connects that fail, descriptors, the CPUs.

Sources: connect(2), unix(7), ip(7), prlimit(2), sched(7), the kernel's cgroup documentation.
"""

from __future__ import annotations

from typing import Dict, Tuple

from udsprobe.rules.remedy.row import Row, look, now, reload, restart

DENIED: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "namei -l -- {address}",
            "see the owner and mode of each part of the path; then chgrp and chmod the socket, or "
            "add the client's user to the socket's group",
            "connect() needs write permission on the socket and search permission on each "
            "directory above it",
        ),
    ),
}
MISSING: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "ls -l -- {address}",
            "start the server that makes this socket, or correct the path on one of the two sides",
            "the server has not created its socket, or created it elsewhere",
        ),
    )
}
NOBODY_UNIX: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "sudo ss -xlp | grep -F -- {address}",
            "check that nothing listens there, then start the server again",
            "the socket file exists but nothing listens on it: its server ended without removing "
            "it",
        ),
    )
}
NOBODY_TCP: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "sudo ss -ltnp 'sport = :{port}'",
            "check whether anything listens at {address}, then start the server",
            "a connect needs a listener at that address and port",
        ),
    )
}
NO_ANSWER: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "timeout 3 bash -c 'exec 3<>/dev/tcp/$0/$1 && echo open' {host} {port}",
            "see whether it answers now: a host that is down, a firewall that drops packets and a "
            "full accept queue there say nothing",
            "a first packet (SYN) without an answer is sent again after a second, then after two, "
            "until the program or the kernel gives up",
        ),
    )
}
NO_PORT: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            'sudo sysctl -w net.ipv4.ip_local_port_range="1024 65535"',
            "allow more local ports; for good: keep connections open (a pool)",
            "each connection to an address occupies a local port until one minute after it is "
            "closed",
        ),
    )
}
FULL_ELSEWHERE: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "sudo udsprobe attach --listener={address}",
            "see why its server does not accept in time",
            "shows the limit of that queue and what its server does instead of accepting",
        ),
    )
}

_NEEDS = "each connection needs a descriptor; without one accept() and open() fail"
_NOFILE = now(
    "sudo prlimit --pid {pid} --nofile={more}:{more_hard}",
    "raise the limit of open files of the running process; for good: LimitNOFILE={more} in its "
    "systemd unit",
    _NEEDS,
    "sudo prlimit --pid {pid} --nofile={was}:{more_hard}",
)
NOFILE: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        _NOFILE,
        restart("LimitNOFILE=65536 in the systemd unit of the server, then restart", _NEEDS),
    ),
    "nginx": (
        _NOFILE,
        reload("worker_rlimit_nofile 65536; then reload nginx", _NEEDS),
    ),
    "haproxy": (
        _NOFILE,
        reload(
            "lower maxconn of HAProxy, or raise LimitNOFILE of its unit and restart",
            "HAProxy derives one from the other when it starts",
        ),
    ),
    "redis": (
        _NOFILE,
        restart(
            "raise LimitNOFILE of its unit, then restart",
            "Redis derives maxclients from it when it starts",
        ),
    ),
    "memcached": (
        _NOFILE,
        restart("raise -c of memcached, then restart", "it asks for as many files as -c needs"),
    ),
    "mysql": (
        _NOFILE,
        restart("raise open_files_limit in my.cnf and LimitNOFILE, then restart", _NEEDS),
    ),
    "postgresql": (
        restart(
            "lower max_files_per_process, or raise LimitNOFILE of PostgreSQL's unit, then restart",
            "PostgreSQL counts its own open files against the lower of the two",
        ),
        _NOFILE,
    ),
}
OWN_LIMIT: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "cat /proc/{pid}/limits && sysctl fs.inotify.max_user_instances fs.nr_open",
            "look for the limit that it reached: not that of its open files, of which {open} of "
            "{limit} are in use; there is fs.inotify.max_user_instances per user, and programs "
            "have limits of their own",
            "raising a limit that is not reached changes nothing",
        ),
    )
}
NOFILE_HOST: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "sudo sysctl -w fs.file-max=2097152",
            "raise the host's limit of open files",
            "the limit for all processes together is reached",
        ),
        look(
            "sudo find /proc -maxdepth 3 -path '/proc/[0-9]*/fd/*' 2>/dev/null | cut -d/ -f3 | "
            "sort | uniq -c | sort -rn | head",
            "find the processes that hold most of them",
            "one program that leaks descriptors takes them from all others",
        ),
    )
}

# A nice value is of one thread (sched(7)), so that each is named.
_THREADS = '$(ps -L -o lwp= -p "{holder_pids}")'
_OWN_THREADS = '$(ps -L -o lwp= -p "{pids}")'
LOWERED: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            f"sudo renice -n 0 -p {_OWN_THREADS}",
            "give {who} the usual priority; for good: Nice= of its systemd unit",
            "its nice value is above that of {holder}, which therefore runs first",
            f"sudo renice -n {{was}} -p {_OWN_THREADS}",
        ),
    )
}
LOWERED_SESSION: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "echo 0 | sudo tee {files}",
            "give the session of {who} the usual priority",
            "this kernel shares the CPUs out among sessions (sched(7), autogroup), "
            "and the nice value of this one is above that of {holder}",
            "echo {was} | sudo tee {files}",
        ),
    )
}
LOWERED_CGROUP: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "echo {usual} | sudo tee {files}",
            "give the cgroup of {who} the usual CPU weight; for good: CPUWeight= of its systemd "
            "unit, --cpu-shares of its container",
            "the CPUs are shared out among cgroups by their weights, and {holder} has more",
            "echo {was} | sudo tee {files}",
        ),
    )
}
STRANGER: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            f"sudo renice -n 19 -p {_THREADS}",
            "give the lowest priority to {holder} (not part of this service)",
            "the server then runs first; the others still get idle CPU time",
            f"sudo renice -n {{was}} -p {_THREADS}",
        ),
    )
}
STRANGER_SESSION: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "echo 19 | sudo tee {files}",
            "give the lowest priority to the session of {holder} (not part of this service)",
            "this kernel shares the CPUs out among sessions (sched(7), autogroup): renice has no "
            "effect on another session",
            "echo {was} | sudo tee {files}",
        ),
    )
}
STRANGER_CGROUP: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "echo {least} | sudo tee {files}",
            "give the least CPU weight to the cgroup of {holder} (not part of this service); for "
            "good: CPUWeight= in its systemd unit, --cpu-shares of its container",
            "the CPUs are shared out among cgroups by their weights: renice has no effect on "
            "another cgroup",
            "echo {was} | sudo tee {files}",
        ),
    )
}
PARTNER: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        restart(
            "give the server and {holder}, which works with it, more CPUs, or {holder} less to do",
            "it serves the same requests: slowing it down would slow them down",
        ),
    )
}
KERNEL_THREAD: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "cat /proc/softirqs /proc/interrupts",
            "see what the kernel does on these CPUs",
            "{holder} is part of the kernel: do not change its priority",
        ),
    )
}
SHORT_LIVED: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "ps -eo etimes,ppid,pid,comm --sort etimes | head -30",
            "see which processes start them",
            "lists the youngest processes with their parents",
        ),
    )
}
WHO_RUNS: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "top -b -n 1 -H | head -40",
            "see which threads run instead",
            "lists threads by their CPU use",
        ),
    )
}
QUOTA: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "echo {quota} | sudo tee {cpu_max}",
            "lift the CPU quota of {path} until it is set again; for good: CPUQuota= in its "
            "systemd unit, --cpus of its container",
            "the quota stops all its threads until the next period, even if CPUs are free",
            "echo {was} | sudo tee {cpu_max}",
        ),
    )
}
AFFINITY: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "for pid in {pids}; do sudo taskset -apc {all} $pid; done",
            "let {who} run on all CPUs; for good: without taskset, CPUAffinity= of its systemd "
            "unit, worker_cpu_affinity of nginx",
            "sched_setaffinity(2) keeps it on CPU {cpus}",
            "for pid in {pids}; do sudo taskset -apc {cpus} $pid; done",
        ),
    )
}
CPUSET: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "echo {all} | sudo tee {files}",
            "let the cgroup of {who} run on all CPUs; for good: AllowedCPUs= of its systemd unit, "
            "--cpuset-cpus of its container",
            "its cpuset keeps it on CPU {cpus}",
            "echo {cpus} | sudo tee {files_back}",
        ),
    )
}
TOO_MANY_THREADS: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        restart(
            "run about {cpus} workers for {cpus} CPUs",
            "more of them only wait for each other",
        ),
    ),
    "go": (restart("GOMAXPROCS={cpus}, then restart", "more of them only wait for each other"),),
    "nginx": (
        reload("worker_processes {cpus}; then reload", "more of them only wait for each other"),
    ),
    "php-fpm": (
        reload(
            "pm.max_children near {cpus} times what a request waits over what it computes",
            "more of them only wait for each other",
        ),
    ),
    "gunicorn": (
        restart("gunicorn --workers {cpus}, then restart", "more of them only wait for each other"),
    ),
    "postgresql": (
        restart(
            "a pooler such as PgBouncer with default_pool_size near {cpus}",
            "more queries at once than CPUs only wait for each other",
        ),
    ),
}

STOPPED_BY_SIGNAL: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "sudo kill -CONT {pid}",
            "let {who} go on",
            "SIGSTOP, SIGTSTP, SIGTTIN or SIGTTOU stopped all its threads until SIGCONT",
            "sudo kill -STOP {pid}",
        ),
    )
}
STOPPED_BY_TRACER: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "sudo ps -f -p \"$(awk '/^TracerPid:/ {{print $2}}' /proc/{pid}/status)\"",
            "see which debugger or tracer holds {who}, and let it detach",
            "a traced process runs only when its tracer lets it",
        ),
    )
}
TRACED: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "sudo kill -INT {pid}",
            "end {tracer}: strace detaches then, and {who} goes on",
            "a traced process stops twice for each system call, and its tracer runs in between",
        ),
    )
}
STOPPED_BY_FREEZER: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "sudo docker unpause {container}",
            "let the container of {who} go on",
            "a paused container has its cgroup frozen",
            "sudo docker pause {container}",
        ),
        now(
            "sudo systemctl thaw {unit}",
            "let the unit of {who} go on",
            "systemctl freeze stops all processes of a unit",
            "sudo systemctl freeze {unit}",
        ),
        look(
            "sudo cat /proc/{pid}/cgroup",
            "see which cgroup of {who} is frozen: somebody wrote 1 into its cgroup.freeze",
            "its processes go on when 0 is written there",
        ),
    )
}

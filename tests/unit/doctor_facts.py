"""Facts for tests of doctor's rules: a host without a fault, to be changed one field at a time."""

from __future__ import annotations

from typing import Any

from udsprobe.doctor.facts import Facts, ListenerFacts, NetworkLimits, NginxFacts, ProcessFacts
from udsprobe.doctor.nginx.config import read
from udsprobe.host_facts import HostLimits, KernelFacts, Strategy
from udsprobe.servers.nginx_files import statements

NETNS = 4026531840


def healthy(**changed: Any) -> Facts:
    """A host with one server that lacks nothing."""
    fields = {
        "kernel": KernelFacts(strategies=(Strategy("tracepoint", "works", None),), jit=1),
        "host": HostLimits(
            file_max=100_000,
            files_open=1_000,
            threads_max=30_000,
            pid_max=32_768,
            threads=300,
            rmem_max_bytes=212_992,
            wmem_max_bytes=212_992,
        ),
        "networks": (network(),),
        "processes": (process(),),
        "listeners": (listener(),),
    }
    return Facts(**{**fields, **changed})


def network(**changed: Any) -> NetworkLimits:
    fields = {
        "netns": NETNS,
        "own": True,
        "somaxconn": 4096,
        "max_dgram_qlen": 10,
        "tcp_abort_on_overflow": 0,
        "tcp_syncookies": 1,
    }
    return NetworkLimits(**{**fields, **changed})


def process(**changed: Any) -> ProcessFacts:
    fields = {
        "pid": 4711,
        "ppid": 1,
        "comm": "app",
        "kind": "other",
        "netns": NETNS,
        "fds_open": 20,
        "nofile_soft": 1024,
        "nofile_hard": 524_288,
    }
    return ProcessFacts(**{**fields, **changed})


def listener(**changed: Any) -> ListenerFacts:
    fields = {
        "transport": "tcp",
        "address": "0.0.0.0:80",
        "netns": NETNS,
        "pids": (4711,),
        "depth_now": 0,
        "backlog": 511,
        "somaxconn": 4096,
        "host": "0.0.0.0",
        "port": 80,
    }
    return ListenerFacts(**{**fields, **changed})


def nginx(text: str, **changed: Any) -> NginxFacts:
    """A running nginx 1.22.1 with this configuration."""
    fields = {
        "pid": 80,
        "config_path": "/etc/nginx/nginx.conf",
        "version": (1, 22, 1),
        "workers": (81, 82),
        "config": read(statements(text.encode(), "nginx.conf")),
        "worker_nofile": 65_536,
        "netns": NETNS,
    }
    return NginxFacts(**{**fields, **changed})

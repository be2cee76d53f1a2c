"""The machine a benchmark ran on, and the versions of what it compared."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any, Dict

VERSIONS = {
    "bpftrace": ["bpftrace", "--version"],
    "strace": ["strace", "--version"],
    "perf": ["perf", "--version"],
    "libbpf-tools": ["dpkg-query", "-W", "-f", "${Version}", "libbpf-tools"],
    "nginx": ["nginx", "-v"],
    "node": ["node", "--version"],
    "redis": ["redis-server", "--version"],
}


def describe() -> Dict[str, Any]:
    """Kernel, CPUs, memory, load before, date, versions."""
    memory = Path("/proc/meminfo").read_text().split()
    return {
        "kernel": platform.release().split("-")[0],
        "arch": platform.machine(),
        "cpus": os.cpu_count(),
        "memory_kb": int(memory[1]),
        "load_average_before": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": {name: _first_line(words) for name, words in VERSIONS.items()},
    }


def _first_line(words: Any) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return "not installed"
    if done.returncode:
        return "not installed"
    lines = (done.stdout + done.stderr).splitlines()
    return lines[0].strip() if lines else ""

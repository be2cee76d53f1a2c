"""A running Caddy: its configuration file, JSON as it is, a Caddyfile through `caddy adapt`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any, Dict, List, Optional, Tuple

from udsprobe.doctor.caddy_config import hops
from udsprobe.doctor.facts import CaddyFacts, ConfigError, ProcessFacts
from udsprobe.host_facts import NotChecked
from udsprobe.servers.target_files import TargetFiles, Unreadable

_CMDLINE_MAX = 1 << 20
_CONFIG_MAX = 16 << 20
_ADAPT_WITHIN_S = 20.0
# Nothing of ours, such as a token, for the configuration's placeholders.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent", "LC_ALL": "C"}


class _Unknown(Exception):
    """It cannot be told what is configured: nobody's fault."""


def caddy_facts(process: ProcessFacts) -> Tuple[CaddyFacts, Tuple[NotChecked, ...]]:
    """What the file of a running Caddy says, and what could not be looked at."""
    path, adapter = configured(_arguments(process.pid))
    try:
        config = _config(process.pid, path, adapter)
    except _Unknown as error:
        what = f"the configuration of caddy {process.pid}"
        remedy = "`caddy adapt` shows it, if `caddy` is installed where doctor runs"
        return CaddyFacts(process.pid, path, netns=process.netns), (
            NotChecked(what, str(error), remedy),
        )
    except (Unreadable, ValueError, RecursionError) as error:
        reason = "unreadable" if isinstance(error, Unreadable) else "broken"
        says = str(error) if isinstance(error, Unreadable) else "it is not JSON that Caddy accepts"
        wrong = ConfigError(reason, path, says)
        return CaddyFacts(process.pid, path, errors=(wrong,), netns=process.netns), ()
    return CaddyFacts(process.pid, path, hops(config), netns=process.netns), ()


def configured(arguments: List[str]) -> Tuple[str, Optional[str]]:
    """Path and adapter from the command line; the default is a Caddyfile where it was started."""
    given: Dict[str, str] = {}
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in ("--config", "-c", "--adapter", "-a", "-config", "-adapter"):
            following = arguments[at + 1] if at + 1 < len(arguments) else ""
            given[name.strip("-")[0]] = value if equals else following
    path = given.get("c", "Caddyfile")
    name = path.rpartition("/")[2]
    default = None if name.endswith(".json") or "Caddyfile" not in name else "caddyfile"
    return path, given.get("a", default)


def _config(pid: int, path: str, adapter: Optional[str]) -> Any:
    if "{" in path or path == "-":
        raise _Unknown("it came through standard input or a placeholder")
    raw = TargetFiles(pid).read(path, _CONFIG_MAX).raw
    if adapter is None:
        return json.loads(raw.decode("utf-8", "replace"))
    return _adapted(pid, path, adapter)


def _adapted(pid: int, path: str, adapter: str) -> Any:
    # Only a program of our own PATH, and only where its files mean the same as ours.
    program = shutil.which("caddy")
    if program is None:
        raise _Unknown(f"it is a {adapter} and there is no `caddy` here to read it")
    if not _same_root(pid):
        raise _Unknown(f"it is a {adapter} in another root or mount namespace")
    cwd = os.readlink(f"/proc/{pid}/cwd")
    try:
        done = subprocess.run(
            [program, "adapt", "--config", os.path.join(cwd, path), "--adapter", adapter],
            cwd=cwd,
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ADAPT_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise _Unknown("`caddy adapt` did not answer") from None
    if done.returncode != 0:
        raise ValueError("caddy adapt refused it")
    return json.loads(done.stdout.decode("utf-8", "replace"))


def _same_root(pid: int) -> bool:
    try:
        same = os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
        return same and os.path.samefile(f"/proc/{pid}/root", "/")
    except OSError:
        return False


def _arguments(pid: int) -> List[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read(_CMDLINE_MAX).split(b"\0")]
    except OSError:
        return []

"""Kernel lockdown: which level is in force, and how a refusal of BPF by it looks.

Knows securityfs' file and the verifier's words; changes nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

LOCKDOWN = Path("/sys/kernel/security/lockdown")
# kernel/trace/bpf_trace.c: to the verifier a helper that lockdown forbids does not exist.
_NO_HELPER = re.compile(
    r"(?:unknown func|program of this type cannot use helper) bpf_probe_read_kernel(?:_str)?#"
)


def lockdown_level(path: Path = LOCKDOWN) -> Optional[str]:
    """`none`, `integrity` or `confidentiality`; None when securityfs does not show it."""
    try:
        return lockdown_of(path.read_text(errors="replace"))
    except OSError:
        return None


def lockdown_of(text: Optional[str]) -> Optional[str]:
    """The level in brackets: `none [integrity] confidentiality` → `integrity`."""
    found = re.search(r"\[([a-z]+)\]", text or "")
    return None if found is None else found[1]


def forbids_reading(log: str, level: Optional[str]) -> bool:
    """Whether lockdown is why programs were refused.

    Args:
        log: the verifier's words.
        level: from `lockdown_level`; where a container hides it, the log decides.
    """
    if level is not None:
        return level == "confidentiality"
    return bool(_NO_HELPER.search(log))

"""What the running kernel lets udsprobe measure."""

from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

from udsprobe.doctor.finding import Evidence, Finding
from udsprobe.host_facts import KernelFacts
from udsprobe.model.action import CHANGES, Action, by_hand, command
from udsprobe.sample import MeasurementState

_NOT_BUILT = "not measured in this version"
# In reasons of `udsprobe.kernel.abilities.plan`.
_LESS_WITH = "strategy fentry has no probes"


def kernel_findings(kernel: KernelFacts) -> Iterator[Finding]:
    """Why less than everything can be measured here, and what makes it dear."""
    works = any(one.state == "works" for one in kernel.strategies)
    refused = [one for one in kernel.strategies if one.state == "refused"]
    if refused and not works:
        yield Finding(
            "kernel-refuses",
            "warning",
            "kernel",
            "attach and run do not work here: " + (refused[0].reason or refused[0].name),
            tuple(Evidence(one.name, one.reason, "tried just now") for one in refused),
            (
                command(
                    "udsprobe listeners",
                    "look at the listeners' queues without probes",
                    "works without probes, and so does doctor",
                ),
            ),
        )
    yield from _impaired(kernel)
    if kernel.lockdown == "confidentiality":
        yield _lockdown()
    if kernel.jit == 0:
        yield _interpreted()


def _impaired(kernel: KernelFacts) -> Iterator[Finding]:
    by_reason: Dict[Tuple[str, str], List[MeasurementState]] = {}
    for one in kernel.measurements:
        if one.state != "on" and one.reason != _NOT_BUILT:
            by_reason.setdefault((one.state, one.reason or ""), []).append(one)
    for (state, reason), found in by_reason.items():
        names = ", ".join(one.name for one in found)
        yield Finding(
            "measurement-impaired",
            "info",
            names,
            f"{names}: {state}: {reason}",
            tuple(Evidence(one.name, one.state, one.rests_on or "nothing") for one in found),
            (_remedy(reason),),
        )


def _remedy(reason: str) -> Action:
    if _LESS_WITH in reason:
        return by_hand(
            "attach with --strategy tracepoint",
            "it sees every call, at a cost for every call on the host",
        )
    return by_hand("use a kernel of 6.3 or later", "it has the missing tracepoints")


def _lockdown() -> Finding:
    return Finding(
        "kernel-lockdown",
        "warning",
        "kernel",
        "kernel lockdown is in confidentiality mode: BPF programs may not read kernel memory",
        (Evidence("lockdown", "confidentiality", "/sys/kernel/security/lockdown"),),
        (
            by_hand(
                "boot with lockdown=integrity",
                "LOCKDOWN_BPF_READ_KERNEL refuses bpf_probe_read_kernel()",
            ),
        ),
    )


def _interpreted() -> Finding:
    name = "net.core.bpf_jit_enable"
    return Finding(
        "bpf-jit-off",
        "info",
        name,
        "BPF programs are interpreted here: every traced call costs several times as much",
        (Evidence(name, 0, "/proc/sys/net/core/bpf_jit_enable"),),
        (
            command(
                f"sudo sysctl -w {name}=1",
                "let the kernel compile BPF programs",
                "for programs loaded from now on",
                effect=CHANGES,
                undo=f"sudo sysctl -w {name}=0",
            ),
        ),
    )

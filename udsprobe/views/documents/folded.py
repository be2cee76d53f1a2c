"""Stacks as folded text: one line each, `process;outermost;…;innermost COUNT`; of sleeps the
count is µs.

Flame graph programs read it: flamegraph.pl, inferno, speedscope.
"""

from __future__ import annotations

from typing import Dict, Iterable

from udsprobe.model.report import CodeStack
from udsprobe.views.documents.report_document import utf8
from udsprobe.views.fields.call_tree import weight_of


def folded(stacks: Iterable[CodeStack], comms: Dict[int, str]) -> str:
    """Lines in the order given, each ended.

    Args:
        comms: pid → name of the process.
    """
    return "".join(f"{_line(each, comms)} {weight_of(each)}\n" for each in stacks)


def _line(stack: CodeStack, comms: Dict[int, str]) -> str:
    first = f"{comms.get(stack.pid, 'pid')} {stack.pid}"
    # Between frames the format has `;`.
    return ";".join(utf8(each).replace(";", ":") for each in (first, *stack.frames))

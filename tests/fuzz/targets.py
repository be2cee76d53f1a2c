"""Every target, by name."""

from __future__ import annotations

from typing import Dict

from tests.fuzz import configurations, documents, kernel_readers, options, symbols
from tests.fuzz.target import Target

TARGETS: Dict[str, Target] = {
    each.name: each
    for module in (kernel_readers, documents, configurations, options, symbols)
    for each in module.TARGETS
}

"""What is imported while the kernel verifies the probes, which takes about as long."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Callable, List

REPORTING = "udsprobe.reporting"
OF_FORM = {
    "screen": ["udsprobe.views.dashboard.app", "udsprobe.commands.live.screen"],
    "plain": ["udsprobe.views.text.report_text"],
    "json": ["udsprobe.views.documents.report_document"],
    "jsonl": ["udsprobe.views.documents.report_document"],
}


def early_imports(form: str) -> Callable[[], None]:
    """What an observation needs that is shown in this form, to be called in any thread.

    Args:
        form: `screen`, `plain`, `json` or `jsonl`.
    """
    return lambda: _import([REPORTING, *OF_FORM[form]])


def _import(modules: List[str]) -> None:
    for name in modules:
        # Whoever needs it imports it again, and says what is wrong with it.
        with suppress(Exception):
            importlib.import_module(name)

"""Programs that say what is true of them, as JSON in their first line, and then stand still."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from typing import Any, Iterator


@contextmanager
def saying(*argv: str) -> Iterator[Any]:
    """What it says; it ends with the block."""
    with subprocess.Popen(argv, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()

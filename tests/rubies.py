"""The interpreters of Ruby that are installed here."""

from __future__ import annotations

import os
from pathlib import Path

_NAMED = (path.name for each in os.get_exec_path() for path in Path(each).glob("ruby[3-9].[0-9]"))
# One at least: a machine without it says so.
RUBIES = sorted(set(_NAMED)) or ["ruby"]

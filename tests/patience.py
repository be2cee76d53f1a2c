"""How long a test waits for what must come: long, because waiting costs nothing when it comes.

A machine that is busy, or whose CPUs the hypervisor has given to others, is slow and not wrong.
"""

from __future__ import annotations

import os

# 1 on real hardware; tests under an emulated kernel set more (scripts/vm).
SLOWNESS = float(os.environ.get("UDSPROBE_SLOWNESS", "1"))
PATIENCE_S = 120.0 * SLOWNESS

"""How slow this machine is: what tests that wait or compare clocks have to allow for.

1 on real hardware. On an emulated processor a probe takes as long as the
thing it measures, so the distance of two clocks says little; counts stay exact.
"""

from __future__ import annotations

import os

SLOWNESS = float(os.environ.get("UDSPROBE_SLOWNESS", "1"))

"""What limits the targets, judged from a report alone.

`judged(report)` fills in `verdict` and `findings`. Everything here is a pure
function of `udsprobe.model.report`; the numbers that decide are named in
`thresholds` and explained in `docs/verdicts.md`.
"""

from udsprobe.rules.judge import judged
from udsprobe.rules.steadiness import over_parts

__all__ = ["judged", "over_parts"]

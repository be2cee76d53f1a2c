"""Two sides, each of one or several runs, put side by side: what differs, and where it comes from.

Pure: knows report documents and their sums, no file and no clock.
`docs/compare.md` explains the figures and the noise.
"""

from udsprobe.compare.run import Run, run_of
from udsprobe.compare.side_by_side import compare

__all__ = ["Run", "compare", "run_of"]

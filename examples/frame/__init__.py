"""What the examples share: their command line, observing by udsprobe, tables.

Servers, loads and their clean-up are the scenario lab's (`tests.scenarios.bench.Bench`).
"""

from examples.frame.command import Options, Result, run
from examples.frame.observing import Observation, observe
from examples.frame.table import document, replace_measured, table

__all__ = [
    "Observation",
    "Options",
    "Result",
    "document",
    "observe",
    "replace_measured",
    "run",
    "table",
]

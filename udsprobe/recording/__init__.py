"""Recordings: the samples of an observation in one SQLite file (docs/recording.md).

Reading one needs neither root nor BPF, and imports neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from udsprobe.recording.reader import Recording, open_recording
    from udsprobe.recording.retention import Retention
    from udsprobe.recording.writer import Recorder, RecordingFailedError

__all__ = ["Recorder", "Recording", "RecordingFailedError", "Retention", "open_recording"]
_PLACES = {
    "Recorder": "writer",
    "Recording": "reader",
    "RecordingFailedError": "writer",
    "Retention": "retention",
    "open_recording": "reader",
}


def __getattr__(name: str) -> Any:
    # On first use: `attach` needs its options alone, and they keep the first sample waiting.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)

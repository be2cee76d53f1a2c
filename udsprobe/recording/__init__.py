"""Recordings: the samples of an observation in one SQLite file (docs/recording.md).

Reading one needs neither root nor BPF, and imports neither.
"""

from __future__ import annotations

from udsprobe.recording.reader import Recording, open_recording
from udsprobe.recording.retention import Retention
from udsprobe.recording.writer import Recorder, RecordingFailedError

__all__ = ["Recorder", "Recording", "RecordingFailedError", "Retention", "open_recording"]

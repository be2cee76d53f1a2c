"""The virtual machines of Java that are installed here, of versions whose methods are named."""

from __future__ import annotations

from pathlib import Path

JAVAS = sorted({str(path.resolve()) for path in Path("/usr/lib/jvm").glob("*/bin/java")})

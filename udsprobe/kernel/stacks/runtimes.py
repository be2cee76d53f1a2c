"""What interprets, or makes at run time, the code of a process."""

from __future__ import annotations

from typing import NamedTuple, Optional

from udsprobe.kernel.stacks.php_frames import PhpLayout
from udsprobe.kernel.stacks.python_frames import PythonLayout
from udsprobe.kernel.stacks.ruby_frames import RubyLayout
from udsprobe.kernel.stacks.v8_frames import V8Layout


class Runtimes(NamedTuple):
    """How the frames of each are followed; None: it has none, or none that is known."""

    python: Optional[PythonLayout] = None
    v8: Optional[V8Layout] = None
    php: Optional[PhpLayout] = None
    ruby: Optional[RubyLayout] = None

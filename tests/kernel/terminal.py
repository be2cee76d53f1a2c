"""A real terminal of a given size: tmux, with a server of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import Callable, Dict, Optional

from tests.patience import PATIENCE_S

Condition = Callable[[str], object]


class Terminal:
    """A shell in a terminal that has prompted, until the block is left.

    Args:
        tmux: its path.
        folder: for tmux's socket.
        environment: besides ours.
    """

    def __init__(
        self,
        tmux: str,
        folder: Path,
        columns: int = 80,
        lines: int = 24,
        environment: Optional[Dict[str, str]] = None,
    ) -> None:
        # /dev/null: no configuration of the user's.
        self._tmux = [tmux, "-S", str(folder / "tmux"), "-f", "/dev/null"]
        size = ["-x", str(columns), "-y", str(lines)]
        start = ["new-session", "-d", *size, "-s", "test", "sh"]
        plain = {**os.environ, "PS1": "$ ", "ENV": "", **(environment or {})}
        subprocess.run([*self._tmux, *start], check=True, env=plain)
        # What is typed before is echoed by the terminal alone, or not at all.
        self.wait(str.strip)

    def type(self, text: str) -> None:
        """Type a line and press Enter."""
        self._run("send-keys", "-t", "test", "-l", text)
        self.press("Enter")

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self._run("send-keys", "-t", "test", *keys)

    def resize(self, columns: int, lines: int) -> None:
        """Give the window another size."""
        self._run("resize-window", "-t", "test", "-x", str(columns), "-y", str(lines))

    def screen(self) -> str:
        """What can be seen."""
        return self._run("capture-pane", "-p", "-t", "test")

    def everything(self) -> str:
        """What can be seen, and the scrollback above it; wrapped lines joined."""
        return self._run("capture-pane", "-p", "-J", "-S", "-", "-t", "test")

    def styled(self) -> str:
        """`everything` with the escapes that style it."""
        return self._run("capture-pane", "-p", "-e", "-J", "-S", "-", "-t", "test")

    def flag(self, name: str) -> str:
        """One of tmux's formats, such as `alternate_on`."""
        return self._run("display-message", "-p", "-t", "test", f"#{{{name}}}").strip()

    def copy_to(self, file: Path) -> None:
        """Also write every byte that programs send to the terminal to a file, from now on."""
        self._run("pipe-pane", "-t", "test", f"cat > {shlex.quote(str(file))}")

    def take_clipboard(self) -> None:
        """Let programs set tmux's buffer, as terminals let them set the clipboard."""
        self._run("set-option", "-s", "set-clipboard", "on")

    def clipboard(self) -> str:
        """What programs put there, all of it; empty when nothing."""
        return self._run("list-buffers", "-F", "#{buffer_sample}")

    def wait(self, condition: Condition, what: Optional[Callable[[], str]] = None) -> str:
        """The screen as soon as the condition holds.

        Args:
            what: where to look; the screen by default.
        """
        look = what or self.screen
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            seen = look()
            if condition(seen):
                return seen
            assert time.monotonic() < give_up_at, f"in vain, seen:\n{seen}"
            time.sleep(0.02)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)


def has_ended(screen: str) -> bool:
    """Whether the shell says that what ran before `echo ended $?` has ended."""
    return re.search(r"^ended \d+$", screen, re.MULTILINE) is not None

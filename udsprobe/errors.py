"""Errors a user can meet: each has a slug, a next step and an exit code."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FINDING = 1
EXIT_USAGE = 2
EXIT_NOT_PERMITTED = 3
EXIT_KERNEL_CANNOT = 4
EXIT_NO_TARGET = 5
EXIT_RECORDING = 6
EXIT_INTERNAL = 70


class UdsprobeError(Exception):
    """An error shown as one line: `udsprobe: error[SLUG]: WHAT; NEXT`.

    Args:
        slug: stable name, a row in `docs/messages.md`.
        what: what failed and why.
        next_step: what the user can do now.
        exit_code: of the contract; each subclass has its own.
        detail: shown with `--debug` only, e.g. the verifier's last lines.
    """

    exit_code = EXIT_INTERNAL

    def __init__(self, slug: str, what: str, next_step: str, *, detail: str = "") -> None:
        super().__init__(what)
        self.slug = slug
        self.what = what
        self.next_step = next_step
        self.detail = detail

    def line(self) -> str:
        """The one line for stderr, every character of it visible."""
        text = f"udsprobe: error[{self.slug}]: {self.what}; {self.next_step}"
        return _shown(" ".join(text.split()))

    def detail_lines(self) -> str:
        """`detail` for stderr: its lines, every other character visible."""
        return "\n".join(map(_shown, self.detail.split("\n")))


def _shown(line: str) -> str:
    return "".join(map(_visible, line))


def _visible(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


class UsageError(UdsprobeError):
    exit_code = EXIT_USAGE


class NotPermittedError(UdsprobeError):
    exit_code = EXIT_NOT_PERMITTED


class KernelCannotError(UdsprobeError):
    exit_code = EXIT_KERNEL_CANNOT


class NoTargetError(UdsprobeError):
    exit_code = EXIT_NO_TARGET


class RecordingError(UdsprobeError):
    exit_code = EXIT_RECORDING

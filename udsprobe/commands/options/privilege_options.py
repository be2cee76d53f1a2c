"""`--keep-privileges`, and what is given up without it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

import click

from udsprobe.written_files import invoking_user

if TYPE_CHECKING:
    from udsprobe.commands.options.shared import WatchOptions
    from udsprobe.kernel.abilities.privileges import LeastPrivilege

Command = TypeVar("Command", bound=Callable[..., Any])


def keep_privileges_option(command: Command) -> Command:
    """Add `--keep-privileges`."""
    return click.option(
        "--keep-privileges",
        is_flag=True,
        help="Stay root after attaching; docs/privileges.md says what that adds.",
    )(command)


def least_privilege(options: WatchOptions) -> Optional[LeastPrivilege]:
    """How an observation goes on once all is attached; None: as it began."""
    # Options are those of commands too that need no kernel.
    from udsprobe.kernel.abilities.privileges import LeastPrivilege

    if options.keep_privileges:
        return None
    record = None if options.record is None else options.record.path
    made_later = [path for path in (options.ready_file, record) if path]
    places = tuple(os.path.dirname(os.path.abspath(path)) for path in made_later)
    return LeastPrivilege(invoking_user(), places)

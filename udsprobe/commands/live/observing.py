"""An observer as the shared options ask for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Iterable, Optional, Tuple

from udsprobe.commands.options.privilege_options import least_privilege
from udsprobe.commands.options.shared import WatchOptions
from udsprobe.commands.output.notices import notice
from udsprobe.kernel.objects.alongside import Work, nothing
from udsprobe.observe import Observer

if TYPE_CHECKING:
    from udsprobe.kernel.selectors import Chosen
    from udsprobe.recording.writer import Recorder


def observer_of(
    options: WatchOptions,
    chosen: Iterable[Chosen],
    *,
    program: Optional[Tuple[str, str]] = None,
    recorder: Optional[Recorder] = None,
    meanwhile: Work = nothing,
) -> Observer:
    """Live and at its first sample; what is not an option is as `Observer` takes it.

    Raises:
        UdsprobeError: of `Observer`.
    """
    return Observer(
        chosen,
        interval_s=options.interval_s,
        follow=options.follow,
        slo_us=options.slo_us,
        program=program,
        strategy=options.strategy,
        detail=options.detail,
        privileges=least_privilege(options),
        stacks=options.stacks,
        recorder=recorder,
        meanwhile=meanwhile,
        at_end=_tell_of_the_end,
    )


def _tell_of_the_end(functions: int) -> None:
    if functions and sys.stderr is not None and sys.stderr.isatty():
        notice(
            f"the kernel is removing the probes from {functions} functions, which takes some "
            "seconds"
        )

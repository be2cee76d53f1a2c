"""An observer as the shared options ask for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Iterable, Optional, Tuple, Union

from udsprobe.commands.options.privilege_options import least_privilege
from udsprobe.commands.options.shared import WatchOptions
from udsprobe.commands.output.notices import notice
from udsprobe.kernel.objects.alongside import Work, nothing
from udsprobe.observe import Observer

if TYPE_CHECKING:
    from udsprobe.auto_observe import AutoObserver, WindowSample
    from udsprobe.kernel.selectors import Chosen
    from udsprobe.recording.writer import Recorder

AnyObserver = Union[Observer, "AutoObserver"]


def observer_of(
    options: WatchOptions,
    chosen: Iterable[Chosen],
    *,
    program: Optional[Tuple[str, str]] = None,
    recorder: Optional[Recorder] = None,
    meanwhile: Work = nothing,
    on_window_sample: Optional[WindowSample] = None,
) -> AnyObserver:
    """Live and at its first sample; what is not an option is as `Observer` takes it.

    Args:
        on_window_sample: with detail auto, told the samples of full windows.

    Raises:
        UdsprobeError: of `Observer`.
    """
    if options.detail == "auto":
        return _auto(options, chosen, program, recorder, meanwhile, on_window_sample)
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


def _auto(
    options: WatchOptions,
    chosen: Iterable[Chosen],
    program: Optional[Tuple[str, str]],
    recorder: Optional[Recorder],
    meanwhile: Work,
    on_window_sample: Optional[WindowSample],
) -> AutoObserver:
    from udsprobe.auto_observe import AutoObserver, AutoOptions, untold

    observer = AutoObserver(
        chosen,
        AutoOptions(
            interval_s=options.interval_s,
            follow=options.follow,
            slo_us=options.slo_us,
            strategy=options.strategy,
            stacks=options.stacks,
            at_end=_tell_of_the_end,
            budget=options.budget,
        ),
        program=program,
        privileges=least_privilege(options),
        recorder=recorder,
        meanwhile=meanwhile,
        on_window_sample=on_window_sample or untold,
    )
    notice(
        f"full detail comes each {observer.control.period_s:.0f} s, and while there is pressure: "
        f"--budget {100 * options.budget:g}%"
    )
    return observer


def _tell_of_the_end(functions: int) -> None:
    if functions and sys.stderr is not None and sys.stderr.isatty():
        notice(
            f"the kernel is removing the probes from {functions} functions, which takes some "
            "seconds"
        )

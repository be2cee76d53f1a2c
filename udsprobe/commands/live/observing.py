"""An observer as the shared options ask for it."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Callable, Iterable, Optional, Tuple, Union

from udsprobe.commands.options.privilege_options import least_privilege
from udsprobe.commands.options.shared import WatchOptions
from udsprobe.commands.output.notices import notice
from udsprobe.kernel.objects.alongside import Work, nothing
from udsprobe.observe import Observer

if TYPE_CHECKING:
    from udsprobe.auto_observe import AutoObserver, AutoOptions, WindowSample
    from udsprobe.kernel.selectors import Chosen
    from udsprobe.recording.writer import Recorder
    from udsprobe.sample import Sample

AnyObserver = Union[Observer, "AutoObserver"]


def observer_of(
    options: WatchOptions,
    chosen: Iterable[Chosen],
    *,
    program: Optional[Tuple[str, str]] = None,
    recorder: Optional[Recorder] = None,
    meanwhile: Work = nothing,
    on_window_sample: Optional[WindowSample] = None,
    on_change: Optional[Callable[[Sample], object]] = None,
) -> AnyObserver:
    """Live and at its first sample; what is not an option is as `Observer` takes it.

    Args:
        on_window_sample: with detail auto, told the samples of full windows.
        on_change: with detail auto, told when light is taken off for what it costs. With it, light
            comes back, and what is counted begins anew then.

    Raises:
        UdsprobeError: of `Observer`.
    """
    if options.detail == "auto":
        from udsprobe.auto_observe import AutoObserver, untold

        observer = AutoObserver(
            chosen,
            _auto_options(options, light_returns=on_change is not None),
            program=program,
            privileges=least_privilege(options),
            recorder=recorder,
            meanwhile=meanwhile,
            on_window_sample=on_window_sample or untold,
            on_change=partial(_changed, on_change or bool),
            on_trouble=lambda error: notice(f"full detail cannot be had now: {error.line()}"),
        )
        notice(_how_often(observer, options))
        return observer
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


def _auto_options(options: WatchOptions, *, light_returns: bool) -> AutoOptions:
    from udsprobe.auto_observe import AutoOptions

    return AutoOptions(
        interval_s=options.interval_s,
        follow=options.follow,
        slo_us=options.slo_us,
        strategy=options.strategy,
        stacks=options.stacks,
        at_end=_tell_of_the_end,
        budget=options.budget,
        light_returns=light_returns,
    )


def _how_often(observer: AutoObserver, options: WatchOptions) -> str:
    said = (
        f"full detail comes each {observer.control.period_s:.0f} s, and when pressure begins: "
        f"--budget {100 * options.budget:g}%"
    )
    return said if observer.has_light else f"{said}; nothing has a probe between, without light"


def _changed(told: Callable[[Sample], object], sample: Sample) -> None:
    """Light came or went: which of the two, the sample says."""
    if sample.traffic is None:
        notice("light was taken off: it cost more than --budget leaves it")
    else:
        notice("light is back: there is less to do")
    told(sample)


def _tell_of_the_end(functions: int) -> None:
    if functions and sys.stderr is not None and sys.stderr.isatty():
        notice(
            f"the kernel is removing the probes from {functions} functions, which takes some "
            "seconds"
        )

"""An observer as the shared options ask for it."""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import TYPE_CHECKING, Callable, Iterable, Optional, Tuple

from udsprobe.commands.options.privilege_options import least_privilege
from udsprobe.commands.options.shared import WatchOptions
from udsprobe.commands.output.notices import notice
from udsprobe.kernel.objects.alongside import Work, nothing
from udsprobe.kernel.objects.own_memory import keep_together
from udsprobe.observe.live_observer import LiveObserver, ObserverOptions, Observing
from udsprobe.observe.observation import Observer

if TYPE_CHECKING:
    from udsprobe.kernel.selectors import Chosen
    from udsprobe.observe.auto import AutoObserver, WindowSample
    from udsprobe.recording.writer import Recorder
    from udsprobe.sample import Sample


def observer_of(
    options: WatchOptions,
    chosen: Iterable[Chosen],
    *,
    program: Optional[Tuple[str, str]] = None,
    recorder: Optional[Recorder] = None,
    meanwhile: Work = nothing,
    on_window_sample: Optional[WindowSample] = None,
    on_change: Optional[Callable[[Sample], object]] = None,
) -> LiveObserver:
    """Live and at its first sample; what is not an option is as `Observer` takes it.

    Args:
        on_window_sample: with detail auto, told the samples of full windows.
        on_change: with detail auto, told when light is taken off for what it costs. With it, light
            comes back, and what is counted begins anew then.

    Raises:
        UdsprobeError: of `Observer`.
    """
    keep_together()
    if options.detail != "auto":
        observer = Observer(
            chosen,
            _observer_options(options, options.detail),
            program=program,
            privileges=least_privilege(options),
            recorder=recorder,
            meanwhile=meanwhile,
        )
        return _lasting(observer)
    from udsprobe.observe.auto import AutoObserver, AutoOptions, untold

    windows = _observer_options(options, "full")
    windowed = AutoObserver(
        chosen,
        AutoOptions(windows, options.budget, light_returns=on_change is not None),
        program=program,
        privileges=least_privilege(options),
        recorder=recorder,
        meanwhile=meanwhile,
        on_window_sample=on_window_sample or untold,
        on_change=partial(_changed, on_change or bool),
        on_trouble=lambda error: notice(f"full detail cannot be had now: {error.line()}"),
    )
    notice(_how_often(windowed, options))
    return _lasting(windowed)


def _lasting(observer: Observing) -> Observing:
    # What there is by now stays until the end: modules, for the most part. Looking for cycles
    # among them took 44 ms, once in 20 s where there is much to do.
    gc.freeze()
    return observer


def _observer_options(options: WatchOptions, detail: str) -> ObserverOptions:
    return ObserverOptions(
        interval_s=options.interval_s,
        follow=options.follow,
        slo_us=options.slo_us,
        strategy=options.strategy,
        detail=detail,
        stacks=options.stacks,
        at_end=_tell_of_the_end,
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

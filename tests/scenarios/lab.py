"""The command of the lab: runs cases, compares verdicts with the truth, prints both scores."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from tests.scenarios import auto, baseline, confusion, cure, drawn, judge, kept
from tests.scenarios.case import CAUSES, Case, all_cases, chosen
from tests.scenarios.judge import Judgement
from tests.scenarios.programs import missing
from tests.scenarios.systems import System, draw
from udsprobe.commands.options.lengths import seconds

OBSERVED_S = 10.0

Observer = Callable[[Case, float], Judgement]


@dataclass(frozen=True)
class Outcome:
    """One case in one run. `error`: it could not be run."""

    case: Case
    run: int
    verdict: Optional[Judgement] = None
    baseline: Optional[Judgement] = None
    error: str = ""

    @property
    def right(self) -> bool:
        return self.verdict is not None and self.verdict.cause == self.case.cause

    @property
    def unnamed(self) -> List[str]:
        return self.verdict.unnamed if self.verdict is not None else []


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/scenarios",
        description="Real servers, each with one planted illness: is the verdict right?",
    )
    parser.add_argument(
        "patterns", nargs="*", help="names, causes or servers: node*, fd-limit, *tcp"
    )
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="of every case")
    parser.add_argument(
        "--duration",
        type=length_s,
        metavar="TIME",
        help="of observation: 10s, drawn ones 3s, at most 60s with --detail auto",
    )
    parser.add_argument(
        "--detail",
        choices=("full", "auto"),
        default="full",
        help="auto: how long until its verdict is right; a healthy case is observed for 20 s",
    )
    parser.add_argument("--no-baseline", action="store_true", help="without the pass of strace -c")
    parser.add_argument("--quick", action="store_true", help="only the cases that the tests run")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="keep every report there")
    parser.add_argument("--json", action="store_true", help="the outcomes as one document")
    parser.add_argument(
        "--cure", action="store_true", help="apply the remedy, and see whether the harm is gone"
    )
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="systems drawn by lot")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the lot")
    parser.add_argument("--noise", action="store_true", help="half of them beside a busy stranger")
    parser.add_argument("--drawn-one", metavar="SEED:INDEX", help="one of them again")
    parser.add_argument(
        "--again", type=Path, metavar="DIR", help="what the rules say now of those kept there"
    )
    parser.add_argument("--list", action="store_true", help="the cases, and run none")
    options = parser.parse_args(argv)
    lot = options.drawn or options.drawn_one
    if options.detail == "auto":
        if lot or options.cure:
            parser.error("--detail auto cannot be combined with --cure or --drawn")
        options.duration = options.duration or auto.WITHIN_S
    options.duration = options.duration or (drawn.ATTACHED_S if lot else OBSERVED_S)
    return options


def length_s(text: str) -> float:
    """An option's duration, in seconds."""
    found_s = seconds(text)
    if found_s is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: give 10s or 500ms")
    return found_s


def run_case(case: Case, run: int, options: argparse.Namespace) -> Outcome:
    """Observe a case, first by udsprobe, then by strace; an error is an outcome."""
    absent = missing(case.needs)
    if absent:
        return Outcome(case, run, error=f"not installed: {', '.join(absent)}")
    try:
        verdict = judge.observe(case, options.duration)
        other = None if options.no_baseline else baseline.observe(case, options.duration)
    except Exception as error:  # one broken case must not end the lab
        return Outcome(case, run, error=f"{type(error).__name__}: {error}")
    return Outcome(case, run, verdict, other)


def keep_report(
    case: Case, run: int, report: Optional[Dict[str, Any]], folder: Optional[Path]
) -> None:
    """Write the report document for later reading."""
    if folder is None or report is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    name = case.name.replace("/", ".") + f".{run}.json"
    (folder / name).write_text(json.dumps(report, indent=1))


def line_of(outcome: Outcome) -> str:
    """One line for a person."""
    name = outcome.case.name
    if outcome.verdict is None:
        return f"ERROR {name}: {outcome.error}"
    mark = "ok   " if outcome.right else "WRONG"
    said = "" if outcome.right else f" said {outcome.verdict.cause}:"
    unnamed = f" (does not name {', '.join(outcome.verdict.unnamed)})"
    beside = f" | strace: {outcome.baseline.cause}" if outcome.baseline else ""
    named = unnamed if outcome.right and outcome.verdict.unnamed else ""
    return f"{mark} {name}:{said} {outcome.verdict.summary}{named}{beside}"


def pairs_of(outcomes: Sequence[Outcome], of_baseline: bool) -> List[Tuple[str, str]]:
    """(true, said) of each outcome that this judge has judged."""
    judged = [(one.case.cause, one.baseline if of_baseline else one.verdict) for one in outcomes]
    return [(true, said.cause) for true, said in judged if said is not None]


def summary_of(outcomes: Sequence[Outcome]) -> str:
    """Both matrices, the errors, and the scores side by side."""
    ours, theirs = pairs_of(outcomes, False), pairs_of(outcomes, True)
    parts = [confusion.matrix(ours, "udsprobe: true cause × verdict")]
    if theirs:
        parts.append(confusion.matrix(theirs, "strace -c by the recipe: true cause × verdict"))
    broken = [line_of(one) for one in outcomes if one.verdict is None]
    unnamed = [line_of(one) for one in outcomes if one.right and one.unnamed]
    wrong = [line_of(one) for one in outcomes if one.verdict is not None and not one.right]
    parts += ["\n".join([*broken, *wrong, *unnamed]) + "\n"] if broken or wrong or unnamed else []
    scores = confusion.score_line("udsprobe", ours)
    scores += confusion.score_line("strace -c", theirs) if theirs else ""
    return "\n".join([*parts, scores])


def document_of(outcomes: Sequence[Outcome]) -> Dict[str, Any]:
    """Everything but the reports, for a program."""
    return {
        "outcomes": [_outcome_document(one) for one in outcomes],
        "udsprobe": confusion.scores(pairs_of(outcomes, False)),
        "strace": confusion.scores(pairs_of(outcomes, True)),
    }


def _outcome_document(outcome: Outcome) -> Dict[str, Any]:
    def said(one: Optional[Judgement]) -> Optional[Dict[str, Any]]:
        return one and {"cause": one.cause, "summary": one.summary, "unnamed": one.unnamed}

    return {
        "case": outcome.case.name,
        "cause": outcome.case.cause,
        "server": outcome.case.server,
        "run": outcome.run,
        "right": outcome.right,
        "udsprobe": said(outcome.verdict),
        "strace": said(outcome.baseline),
        "error": outcome.error or None,
    }


def list_of(cases: Sequence[Case]) -> str:
    """What there is."""
    lines = []
    for cause in CAUSES:
        for one in (one for one in cases if one.cause == cause):
            quick = " (quick)" if one.quick else ""
            lines.append(f"{one.name} [{one.server}, {one.transport}]{quick}: {one.story}")
    return "\n".join([*lines, f"{len(cases)} cases"]) + "\n"


def cure_all(cases: Sequence[Case], options: argparse.Namespace) -> int:
    """The ill cases, each with its remedies applied; 0 when none is wrong."""
    trials: List[cure.Trial] = []
    broken = 0
    sys.stderr.write(cure.HEAD + "\n")
    for case in [one for one in cases if one.cures and not missing(one.needs)] * options.runs:
        try:
            trials.append(cure.attempt(case, options.duration))
            sys.stderr.write(cure.line_of(trials[-1]) + "\n")
        except Exception as error:  # one broken case must not end the lab
            broken += 1
            sys.stderr.write(f"ERROR {case.name}: {type(error).__name__}: {error}\n")
    if options.json:
        documents = [cure.document_of(one) for one in trials]
        sys.stdout.write(json.dumps(documents, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("\n".join([cure.HEAD, *map(cure.line_of, trials)]) + "\n")
        sys.stdout.write(cure.summary_of(trials))
    return 1 if broken or any(one.right is False for one in trials) else 0


def follow_auto(cases: Sequence[Case], options: argparse.Namespace) -> int:
    """Every case in detail auto; 0 when each verdict is right in time, and none a false alarm."""
    trials: List[auto.Trial] = []
    for run in range(1, options.runs + 1):
        for case in cases:
            trials.append(auto.attempt(case, run, options.duration))
            sys.stderr.write(auto.line_of(trials[-1]) + "\n")
            keep_report(case, run, trials[-1].last, options.reports)
    if options.json:
        documents = [auto.document_of(one) for one in trials]
        sys.stdout.write(json.dumps(documents, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(auto.summary_of(trials))
    return 0 if all(one.right for one in trials) else 1


def drawn_systems(options: argparse.Namespace) -> List[System]:
    """Those that the command line asks for.

    Raises:
        ValueError: no SEED:INDEX.
    """
    if options.drawn_one:
        seed, index = map(int, options.drawn_one.split(":"))
        return [draw(seed, index, options.noise)]
    return [draw(options.seed, index, options.noise) for index in range(options.drawn)]


def judge_drawn(options: argparse.Namespace) -> int:
    """Systems drawn by lot, one after the other; 0 when no verdict is wrong."""
    founds: List[drawn.Found] = []
    broken = 0
    for system in drawn_systems(options):
        try:
            founds.append(
                drawn.attempt_in_quiet(
                    system, options.duration, kept.recording_of(system, options.reports)
                )
            )
        except Exception as error:  # one broken system must not end the lot
            broken += 1
            sys.stderr.write(f"ERROR {system.name}: {type(error).__name__}: {error}\n")
            continue
        wrong_now = founds[-1].right is False
        said = drawn.account_of if wrong_now else drawn.line_of
        sys.stderr.write(said(founds[-1]) + "\n")
        kept.keep(founds[-1], options.reports)
    wrong = [one for one in founds if one.right is False]
    if options.json:
        documents = [drawn.document_of(one) for one in founds]
        sys.stdout.write(json.dumps(documents, indent=1, ensure_ascii=False) + "\n")
    else:
        matrix = confusion.matrix(drawn.pairs_of(founds), "true cause × verdict, drawn by lot")
        shown = founds if options.drawn_one else wrong
        sys.stdout.write("\n".join([matrix, *map(drawn.account_of, shown), drawn.score_of(founds)]))
    return 1 if broken or wrong else 0


def main(argv: Optional[Sequence[str]] = None) -> int:
    """0: every case right; 1: not; 2: nothing to run."""
    options = parse_arguments(sys.argv[1:] if argv is None else argv)
    cases = [one for one in chosen(all_cases(), options.patterns) if one.quick or not options.quick]
    if options.list:
        sys.stdout.write(list_of(cases))
        return 0
    if options.again is not None:
        sys.stdout.write(kept.judged_again(options.again))
        return 0
    if options.drawn or options.drawn_one:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return judge_drawn(options)
    if not cases:
        sys.stderr.write("scenarios: no case fits; see --list\n")
        return 2
    # So that a bench is left, and its processes ended, whoever ends the lab.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.cure:
        return cure_all(cases, options)
    if options.detail == "auto":
        return follow_auto(cases, options)
    outcomes: List[Outcome] = []
    began = time.monotonic()
    for run in range(1, options.runs + 1):
        for one in cases:
            outcome = run_case(one, run, options)
            report = None if outcome.verdict is None else outcome.verdict.report
            keep_report(one, run, report, options.reports)
            sys.stderr.write(line_of(outcome) + "\n")
            outcomes.append(outcome)
    if options.json:
        sys.stdout.write(json.dumps(document_of(outcomes), indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(summary_of(outcomes))
        sys.stdout.write(f"{time.monotonic() - began:.0f} s\n")
    return 0 if all(one.right for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Services that compute most of their time around many questions to one upstream."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

import pytest

from tests.unit import ill
from tests.unit.test_code_kinds import found, ran
from udsprobe.model.report import Report, Stacks, Verdict, WholeCall
from udsprobe.rules.judge import judged

REQUESTS, CPU_US, ANSWER_US = 950, 9_000.0, 60.0
PG = "/run/pg.sock"


def call(name: str, at_us: float, duration_us: float, off_us: float = 0.0) -> WholeCall:
    return WholeCall(
        name, at_us, duration_us, off_us, 0.0, 0.0, "unix", 9, None, 7, "upstream", PG, ""
    )


def calls(times: int, computes_us: float, sends: int = 1) -> List[WholeCall]:
    """A thread that asks so often, sleeps until it has each answer, and computes with it."""
    found_: List[WholeCall] = []
    for at in range(times):
        begin_us = at * (computes_us + ANSWER_US + 10)
        found_ += [call("sendto", begin_us, 5.0)] * sends
        found_.append(call("recvfrom", begin_us + 5, ANSWER_US + 5, off_us=ANSWER_US))
    return found_


def report(times: float, made: List[WholeCall]) -> Report:
    """Of a thread that computes for 86 % of the time, 9 ms for each request."""
    row = ill.upstream(round(REQUESTS * times), ANSWER_US, PG)
    requests = ill.served(REQUESTS, app=CPU_US + times * ANSWER_US, cpu=90, upstream=8)
    whole = ill.service(requests, ill.thread(user=0.86, blocked_recv=0.06), upstream=[row])
    kept = replace(ill.kept_request(4711), calls=made)
    return replace(whole, requests=replace(whole.requests, sampled=[kept]))


def verdict(times: float, made: List[WholeCall], code: Optional[Stacks] = None) -> Verdict:
    told = judged(replace(report(times, made), stacks=code)).verdict
    assert told is not None and told.cause == "app-cpu"
    return told


def test_the_many_questions_are_told_with_asking_once_as_the_first_remedy() -> None:
    """30 questions, and of 9 ms of CPU time 280 µs from one to the next."""
    told = verdict(30, calls(20, 270))
    says = (
        "each request asks postgres 55 30 times, and 93 % of its CPU time is spent from one "
        "question to the next"
    )
    assert f"of that in its own code; {says}. " in told.summary
    assert told.evidence[0].says == f"{says}, 280 µs for each of 30"
    assert "a join, or IN (...)" in told.actions[0].say


@pytest.mark.parametrize("sends", [1, 3])
def test_what_is_sent_before_an_answer_is_one_question(sends: int) -> None:
    assert "spent from one question" in verdict(30, calls(20, 270, sends)).summary


def test_where_it_is_a_part_only_it_is_no_headline_and_the_last_remedy() -> None:
    told = verdict(30, calls(20, 120))
    assert "question" not in told.summary
    assert "43 % of its CPU time" in told.evidence[-1].says
    assert "a join, or IN (...)" in told.actions[-1].say


@pytest.mark.parametrize(
    ("times", "made"),
    [(5, calls(5, 1700)), (30, calls(20, 20)), (30, calls(4, 270)), (30, [])],
    ids=["five-different-questions", "it-computes-elsewhere", "too-few-are-kept", "none-is-kept"],
)
def test_of_others_nothing_is_said(times: int, made: List[WholeCall]) -> None:
    told = verdict(times, made)
    assert "question" not in told.summary
    assert all("once for all" not in each.say for each in told.actions)


def scripts(own: int, of_package: int) -> Stacks:
    """Samples in the program's own function, and in a package that it calls."""
    app, package = "/srv/app/shop.py", "/srv/venv/lib/python3.11/site-packages/orm/query.py"
    outer = f"handle\tpython3.11\t{app}\t12"
    inner = f"{outer}\nget\tpython3.11\t{package}\t90"
    counts = [(outer, own), (inner, of_package)]
    return found(*(replace(ran((), count), frames=text) for text, count in counts if count))


@pytest.mark.parametrize(("own", "of_package", "is_told"), [(10, 90, True), (90, 10, False)])
def test_what_the_program_computes_itself_between_them_stays(
    own: int, of_package: int, is_told: bool
) -> None:
    """A loop over rows that asks for each and computes with it for long."""
    code = scripts(own, of_package)
    told = verdict(30, calls(20, 270), code)
    assert ("from one question to the next" in told.summary) == is_told
    assert [each.own_pct for each in code.processes] == [own]


SERVER, FRAMEWORK = "/srv/node_modules/web/server.js", "/srv/node_modules/web/layer.js"


@pytest.mark.parametrize(
    ("own", "named"),
    [(70, "list (app.js:8)"), (20, "handle (layer.js:9)")],
    ids=["most-of-it", "a-part"],
)
def test_what_a_framework_calls_says_more_than_its_own_functions(own: int, named: str) -> None:
    """Of the program's own function less than half of all samples is known: it awaits others."""
    outer = f"handle\tnode\t{FRAMEWORK}\t9"
    inner = f"{outer}\nlist\tnode\t/srv/app/app.js\t8"
    other = f"parse\tnode\t{SERVER}\t3"
    counts = [(inner, own), (outer, 80 - own), (other, 60)]
    made = found(*(replace(ran((), count), frames=text) for text, count in counts))
    assert made.processes[0].code[0].stack[0] == named


def test_what_turns_the_queue_of_node_is_no_function_that_time_goes_to() -> None:
    turns = "processTicksAndRejections\tnode\tnode:internal/process/task_queues\t71"
    texts = [f"{turns}\n{name}\tnode\t/srv/app/app.js\t{at}" for at, name in enumerate("abc")]
    made = found(*(replace(ran((), 30 + at), frames=text) for at, text in enumerate(texts)))
    assert made.processes[0].code[0].stack[0] == "c (app.js:2)"

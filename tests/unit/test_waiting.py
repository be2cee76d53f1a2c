"""Waits in words: nothing is claimed that a wake does not prove."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit import samples
from udsprobe.model.difference import report
from udsprobe.model.report import Author, Peer, Report, RootAuthor, Wait, WaitNow, Waker
from udsprobe.model.timeline import timeline
from udsprobe.views.fields import waiting
from udsprobe.views.html.report_page import render as page
from udsprobe.views.text.report_text import render


def part(**changes: Any) -> Author:
    fixed = Author("thread", 47, 48, "worker", True, "disk", "fsync", 80_000.0)
    return replace(fixed, **changes)


def root(of: Author, *via: str) -> RootAuthor:
    return RootAuthor(**vars(of), via=list(via))


def wait(**changes: Any) -> Wait:
    authors = [part(), part(was="cpu", call=None, total_us=20_000.0)]
    fixed = Wait(
        *(47, 49, "worker", "lock", 12, 100_000.0, 9_000.0),
        authors=authors,
        unknown_us=0.0,
        roots=[root(each) for each in authors],
    )
    return replace(fixed, **changes)


def reported(*rows: Wait) -> Report:
    return replace(report(samples.observation(), *samples.busy_pair()), waits=list(rows))


def test_who_woke_and_what_they_did() -> None:
    assert waiting.sentence(wait()) == (
        "worker 47/49 waited 100ms for a lock or work (12 times): "
        "woken by worker 47/48, 80 % on the disk (fsync)"
    )


def test_who_is_behind_that() -> None:
    behind = part(pid=51, tid=51, comm="postgres", was="cpu", call=None)
    said = waiting.by_whom(wait(roots=[root(behind, "worker 47/48")]))
    assert said.endswith("; behind that postgres 51, 80 % on a CPU")


def test_what_is_not_known_is_not_said() -> None:
    stranger = part(pid=7, tid=7, comm="cron", is_target=False, was=None, call=None)
    assert waiting.by_whom(wait(authors=[stranger], roots=[])) == "woken by cron 7"
    timer = Author("timer", None, None, None, False, None, None, 100_000.0)
    assert waiting.by_whom(wait(authors=[timer], roots=[])) == "woken by a timer"
    assert waiting.by_whom(wait(authors=[], roots=[])) == "not known who ended it"


def test_nobody_is_said_to_have_held_a_lock() -> None:
    assert "held" not in waiting.sentence(wait())


def test_waits_for_work_are_not_told() -> None:
    idle = [wait(kind=kind) for kind in ("poll", "accept", "sleep")]
    assert waiting.told(reported(*idle), 9) == []
    assert waiting.told(reported(wait(total_us=10.0)), 9) == []


def test_the_report_shows_them() -> None:
    shown = reported(wait())
    assert "woken by worker 47/48" in " ".join(render(shown).split())
    taken = list(samples.busy_pair())
    assert "woken by worker 47/48" in page(shown, timeline(taken, taken[-1]))


def going_on(**changes: Any) -> WaitNow:
    fixed = WaitNow(
        *(47, 48, "worker", "lock", "futex", "2026-11-25T02:05:32.635+00:00", 41e6, 1, "0x7f00"),
        last_woken_by=None,
        connection=None,
        peer=None,
    )
    return replace(fixed, **changes)


def test_who_will_end_a_wait_is_not_known() -> None:
    assert waiting.sentence_now(going_on()) == (
        "worker 47/48 has waited 41.0 s for a lock or work (futex), and its process owes 1 reply: "
        "not known yet who will end it"
    )


def test_what_is_known_of_the_other_end() -> None:
    waker, peer = Waker(47, 49, "worker"), Peer(300, "app", None)
    row = going_on(last_woken_by=waker, connection="served", peer=peer, replies_owed=2)
    assert waiting.sentence_now(row).endswith(
        "owes 2 replies: not known yet who will end it; last woken there by worker 47/49; "
        "its client is app 300"
    )
    at = going_on(peer=Peer(None, None, "\x1b[2J"), connection="upstream")
    assert "its upstream is" in waiting.outlook(at)
    assert "\x1b" not in waiting.outlook(at)


def test_waits_that_go_on_are_told_where_replies_are_owed() -> None:
    shown = replace(
        reported(), waits_now=[going_on(), going_on(replies_owed=0), going_on(replies_owed=None)]
    )
    assert waiting.told_now(shown, 9) == [going_on()]
    assert "has waited 41.0 s" in " ".join(render(shown).split())
    taken = list(samples.busy_pair())
    assert "not known yet who will end it" in page(shown, timeline(taken, taken[-1]))


def test_names_are_harmless() -> None:
    assert "\x1b" not in waiting.sentence(wait(comm="evil\x1b[2J"))

"""Connections to a database that are opened for each request: what is waited for is the login."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

from udsprobe.model.report import Report, Upstream
from udsprobe.rules.accounts.service import upstream_us
from udsprobe.rules.suspects.suspect import LOGINS, Suspect
from udsprobe.rules.wording import count, duration, evidence, percent, place


def with_logins(report: Report, suspects: List[Suspect]) -> List[Suspect]:
    """Where most of what an upstream takes are logins, to keep its connections is the remedy."""
    logging_in = {place(row): row for row in report.requests.upstream or [] if _is_login(row)}
    waits = {
        each.subject: each
        for each in suspects
        if each.is_pressure and each.cause == "upstream-wait" and each.subject
        if each.subject in logging_in
    }
    opened = {each.subject for each in suspects if each.cause == "connection-churn"}
    found = []
    for each in suspects:
        subject = each.subject or ""
        wait = waits.get(subject)
        if wait is None or subject not in opened:
            found.append(each)
        elif each.cause == "connection-churn":
            found.append(_to_log_in(each, wait, logging_in[subject]))
        elif each is not wait:
            found.append(each)
    return found


def _login_share(row: Upstream) -> Optional[float]:
    """Of what requests to it take, the part that logins are; None where that is not known."""
    whole_us = upstream_us(row)
    if row.logins is None or not whole_us:
        return None
    return row.logins * (row.login_mean_us or 0.0) / whole_us


def _is_login(row: Upstream) -> bool:
    return 2 * (_login_share(row) or 0.0) >= 1


def _to_log_in(churn: Suspect, wait: Suspect, row: Upstream) -> Suspect:
    share = _login_share(row) or 0.0
    says = (
        f"{percent(share)} of what requests to {place(row)} take are logins: "
        f"{count(row.logins or 0, 'step')} of {duration(row.login_mean_us or 0.0)}"
    )
    return replace(
        churn,
        severity=wait.severity,
        is_pressure=True,
        share_pct=wait.share_pct,
        headline=f"{churn.headline}, and logs in each time",
        evidence=(evidence("login_share", share, "of 1", says), *wait.evidence, *churn.evidence),
        pids=wait.pids,
        waits_for=wait.waits_for,
        harm=wait.harm,
        overloads=wait.overloads,
        kind=LOGINS,
    )

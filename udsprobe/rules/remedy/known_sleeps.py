"""Sleeps in a library whose function tells what for: there is a better remedy than the function.

Source: the library's manual and source.
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional, Pattern, Sequence, Tuple

from udsprobe.rules.remedy.row import Row, restart
from udsprobe.rules.remedy.work import HUNG
from udsprobe.rules.servers import GENERIC


class KnownSleep(NamedTuple):
    """What a library waits for.

    Attributes:
        kind: of remedy. waits_for: in words. functions: of the library, one of which called the
            one that sleeps.
    """

    kind: str
    waits_for: str
    functions: Pattern[str]


# A writer that finds the database locked sleeps and tries again, and nothing wakes it when the
# lock is free (sqlite.org/c3ref/busy_timeout.html).
_SQLITE = KnownSleep(
    "sqlite-lock",
    "the lock of a SQLite database",
    re.compile(r"sqlite3InvokeBusyHandler|btreeInvokeBusyHandler|sqliteDefaultBusyCallback"),
)
# src/backend/storage/lmgr: of a row, a table or what a program locks by itself.
_POSTGRESQL = KnownSleep(
    "postgresql-lock",
    "a lock of the database",
    re.compile(r"ProcSleep|JoinWaitQueue|LockAcquireExtended|XactLockTableWait"),
)
# storage/innobase/lock/lock0wait.cc
_INNODB = KnownSleep(
    "innodb-lock", "a lock of the database", re.compile(r"lock_wait(_suspend_thread)?")
)
# ext/session/mod_files.c: a session's file is locked until it is written, at the end of a request.
_PHP_SESSION = KnownSleep(
    "php-session",
    "a session that another request has",
    re.compile(
        r"(php_)?session_(start|regenerate_id)|php_session_initialize|ps_(read|open)_files"
        r"|ps_files_open"
    ),
)
_KNOWN = (_SQLITE, _POSTGRESQL, _INNODB, _PHP_SESSION)

SQLITE_LOCK: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "keep what writes to the SQLite database short: nothing else between BEGIN and COMMIT, "
            "and many rows in one transaction; or let one process write for all",
            "one writes at a time; the others sleep and try again, and are not told when it is "
            "free",
        ),
        restart(
            "PRAGMA journal_mode=WAL; in the database, and PRAGMA synchronous=NORMAL; in each "
            "connection",
            "readers then do not wait for the writer, and its commits are shorter",
        ),
    )
}
_SHORT_TRANSACTIONS = restart(
    "keep transactions short, without a wait for anybody else inside, and change rows that many "
    "share (a counter, a balance) last in them",
    "who changes such a row keeps all others waiting until its transaction ends",
)
POSTGRESQL_LOCK: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (HUNG["postgresql"][0], _SHORT_TRANSACTIONS)
}
INNODB_LOCK: Dict[str, Tuple[Row, ...]] = {GENERIC: (HUNG["mysql"][0], _SHORT_TRANSACTIONS)}

PHP_SESSION: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "call session_write_close() as soon as a request has set what it sets in its session, "
            "and session_start(['read_and_close' => true]) where it only reads",
            "PHP locks a session from session_start() to the end of the request: requests of one "
            "client take turns",
        ),
    )
}


def known_sleep(stack: Sequence[str]) -> Optional[KnownSleep]:
    """What a stack waits for; None where no function of it tells.

    Args:
        stack: `function (module)`, the innermost first.
    """
    functions = [named.partition(" (")[0] for named in stack]
    return next((k for k in _KNOWN if any(k.functions.fullmatch(f) for f in functions)), None)

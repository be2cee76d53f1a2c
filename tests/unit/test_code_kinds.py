"""Kinds of code: by which names they are known, what they have of the time, and what helps."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import List, Optional, Tuple

import pytest

from tests.repo.pages import EXAMPLES
from tests.unit import ill, reports
from tests.unit.test_code_places import APP, LIBC, line, reading, reports_sample, suspect
from tests.unit.test_report_page import line as told_over_time
from tests.unit.test_report_page import text_of
from udsprobe.model.code.kinds import with_kinds
from udsprobe.model.code.marks import KINDS, MARKS, Found, kind_of
from udsprobe.model.code.stacks import stacks
from udsprobe.model.report import BusyTime, CodeKind, Loop, Report, Stacks
from udsprobe.rules.code_kinds import KIND_WORDS
from udsprobe.rules.code_places import with_code
from udsprobe.rules.remedy.table import KINDS as REMEDIES
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.servers import SERVERS
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.sample import StackCounts
from udsprobe.views.dashboard.pages.code import tree_page
from udsprobe.views.fields import words
from udsprobe.views.html.report_page import render as render_page
from udsprobe.views.text.report_text import render

Stack = Tuple[Tuple[str, str], ...]
KERNEL, NGINX, SSL, CRYPTO = "[kernel]", "nginx", "libssl.so.3", "libcrypto.so.3"
JVM, NODE, PYTHON = "libjvm.so", "node", "libpython3.11.so.1.0"
WORK: Stack = (("main", APP), ("serve", APP))
HANDSHAKE: Stack = (
    *(("main", NGINX), ("ngx_ssl_handshake", NGINX), ("", SSL), ("EVP_DigestSignFinal", CRYPTO)),
    *(("BN_mod_exp_mont_consttime", CRYPTO), ("", CRYPTO)),
)
FULL_COLLECTION: Stack = (
    *(("VMThread::run()", JVM), ("VM_GenCollectForAllocation::doit()", JVM)),
    ("TenuredGeneration::collect(bool, bool, unsigned long, bool)", JVM),
    ("GenMarkSweep::invoke_at_safepoint(ReferenceProcessor*, bool)", JVM),
    ("MarkSweep::follow_stack()", JVM),
)
SENDS: Stack = (
    *(("main", NGINX), ("ngx_writev", NGINX), ("writev", LIBC), ("sock_write_iter", KERNEL)),
    ("unix_stream_sendmsg", KERNEL),
)


@pytest.mark.parametrize(
    ("stack", "kind", "runtime", "part"),
    [
        (HANDSHAKE, "tls-handshake", None, None),
        (
            (("v8::internal::JsonStringifier::SerializeString(v8::Handle)", NODE),),
            *("json-writing", None, None),
        ),
        (
            (
                ("node::StringBytes::Size(v8::Isolate*, v8::Local<v8::Value>)", NODE),
                ("v8::String::Utf8Length(v8::Isolate*) const", NODE),
                ("exc_page_fault", KERNEL),
            ),
            *("text-encoding", None, None),
        ),
        ((("encoding/json.Marshal", "web"),), "json-writing", None, None),
        ((("encoding/json.structEncoder.encode", "web"),), "json-writing", None, None),
        ((("encoder_listencode_obj.isra.0", "_json.so"),), "json-writing", None, None),
        (
            (
                ("com.fasterxml.jackson.databind.ObjectMapper.writeValueAsBytes", "[jit]"),
                ("com.fasterxml.jackson.core.json.UTF8JsonGenerator.writeString", "[jit]"),
            ),
            *("json-writing", None, None),
        ),
        ((("json_encode", "php8.2"),), "json-writing", None, None),
        ((("encoding/json.(*decodeState).object", "web"),), "json-reading", None, None),
        ((("scan_once_unicode", "_json.so"),), "json-reading", None, None),
        ((("text/template/parse.lexText", "web"),), "template-compiling", None, None),
        ((("html/template.htmlEscaper", "web"),), "templates", None, None),
        (
            (("text/template.(*state).walk", "web"), ("regexp.(*Regexp).doExecute", "web")),
            *("templates", None, None),
        ),
        ((("SSL_read", SSL), ("BN_mod_exp_mont", CRYPTO)), "tls-handshake", None, None),
        ((("SSL_read", SSL), ("EVP_CipherUpdate", CRYPTO)), "tls-records", None, None),
        ((("crypto/tls.(*Conn).serverHandshake", "web"),), "tls-handshake", None, None),
        (FULL_COLLECTION, "garbage-collection", "java", None),
        (
            (
                ("GenCollectedHeap::do_collection(bool, bool)", JVM),
                ("DefNewGeneration::collect(bool, bool, unsigned long, bool)", JVM),
                ("__memcpy_avx512_unaligned_erms", LIBC),
            ),
            *("garbage-collection", "java", "young"),
        ),
        (
            (("v8::internal::Heap::CollectGarbage(v8::internal::AllocationSpace)", NODE),),
            *("garbage-collection", "node", None),
        ),
        (
            (
                ("v8::internal::Heap::CollectGarbage(v8::internal::AllocationSpace)", NODE),
                ("v8::internal::Scavenger::Process(v8::JobDelegate*)", NODE),
            ),
            *("garbage-collection", "node", "young"),
        ),
        (
            (("runtime.mallocgc", "web"), ("runtime.gcAssistAlloc.func2", "web")),
            *("garbage-collection", "go", None),
        ),
        ((("gc_collect_main", PYTHON),), "garbage-collection", "python", None),
        ((("gc_start", "libruby-3.1.so.3.1"),), "garbage-collection", "ruby", None),
        ((("zend_gc_collect_cycles", "php8.2"),), "garbage-collection", "php-fpm", None),
        ((("GC.start", "libruby-3.1.so.3.1"),), "garbage-collection", "ruby", None),
        ((("OpenSSL::KDF.pbkdf2_hmac", "libruby.so"),), "password-hashing", None, None),
        ((("Zlib::Deflate.deflate", "libruby.so"),), "compression", None, None),
        ((("Regexp#match?", "ruby"),), "regular-expression", None, None),
        ((("deflate", "libz.so.1"), ("", "libz.so.1")), "compression", None, None),
        ((("handle", "php8.2"), ("preg_match", "php8.2")), "regular-expression", None, None),
        ((("php_pcre_match_impl", "php8.4"), ("", "[jit]")), "regular-expression", None, None),
        ((("hash_pbkdf2", "php-fpm8.2"), ("", "php-fpm8.2")), "password-hashing", None, None),
        ((("password_verify", "libphp8.2.so"),), "password-hashing", None, None),
        ((("gzencode", "php8.2"),), "compression", None, None),
        ((("ZSTD_compressStream2", "libzstd.so.1"),), "compression", None, None),
        ((("pcre2_match_8", "libpcre2-8.so.0"),), "regular-expression", None, None),
        ((("sre_ucs1_match", PYTHON),), "regular-expression", "python", None),
        ((("RegExp:^(a+)+$", "[jit]"),), "regular-expression", None, None),
        ((("PKCS5_PBKDF2_HMAC", NODE), ("SHA256_Update", NODE)), "password-hashing", None, None),
        (
            (*WORK, ("handle_mm_fault", KERNEL), ("try_to_free_mem_cgroup_pages", KERNEL)),
            *("memory-reclaim", None, None),
        ),
        (
            (*WORK, ("handle_mm_fault", KERNEL), ("do_huge_pmd_anonymous_page", KERNEL)),
            *("memory-compaction", None, None),
        ),
        ((*WORK, ("exc_page_fault", KERNEL)), "page-faults", None, None),
        ((*WORK, ("do_futex", KERNEL), ("futex_wake", KERNEL)), "kernel-locks", None, None),
        (
            (*WORK, ("fdatasync", LIBC), ("vfs_fsync_range", KERNEL), ("ext4_sync_file", KERNEL)),
            *("disk-sync", None, None),
        ),
        (
            (*WORK, ("kernel_clone", KERNEL), ("copy_process", KERNEL)),
            "process-creation",
            None,
            None,
        ),
    ],
)
def test_names_tell_the_kind(
    stack: Stack, kind: str, runtime: Optional[str], part: Optional[str]
) -> None:
    found = told(stack)
    assert found is not None
    assert (found.mark.kind, found.mark.runtime, found.mark.part) == (kind, runtime, part)


@pytest.mark.parametrize(
    "stack",
    [
        (),
        WORK,
        (("", NGINX), ("", CRYPTO)),
        # A signature that no connection asked for.
        (("main", APP), ("EVP_DigestSignFinal", CRYPTO), ("BN_mod_exp_mont_consttime", CRYPTO)),
        # Functions of these names in other programs, or in the kernel (zram, IPsec).
        (("gc_start", APP),),
        (("gc_collect_main", APP),),
        (("MarkSweep::follow_stack()", APP),),
        (("deflate_compress", KERNEL), ("deflate", KERNEL)),
        (("handle_mm_fault", APP),),
        # Part of a name.
        (("my_deflater", APP),),
        # Of another language; and what calls functions of the program, which do anything.
        (("preg_match", APP),),
        (("preg_replace_callback", "php8.2"), ("{closure}", "php8.2")),
        (("runtime.mallocgc", "web"),),
        (("json_encode", APP),),
        (("encoding/json.RawMessage", "web"),),
        (("GenCollectedHeap::mem_allocate_work(unsigned long, bool, bool*)", JVM),),
    ],
)
def test_other_names_tell_none(stack: Stack) -> None:
    assert told(stack) is None


def told(stack: Stack) -> Optional[Found]:
    """Of functions whose source files are not known."""
    return kind_of([(*frame, None) for frame in stack])


def test_every_kind_has_marks_words_and_remedies() -> None:
    assert {mark.kind for mark in MARKS} == set(KINDS) == set(KIND_WORDS)
    assert {name for name in REMEDIES if name.startswith("code-")} >= {f"code-{k}" for k in KINDS}
    for mark in MARKS:
        name = f"code-{mark.kind}" + (f"-{mark.part}" if mark.part is not None else "")
        assert name in REMEDIES
        assert mark.runtime is None or mark.runtime in SERVERS


def test_functions_that_the_page_names_tell_their_kind() -> None:
    for kind, text in EXAMPLES.items():
        module = KERNEL if text.endswith("kernel") else None
        names = [each for each in re.findall(r"`([^`]+)`", text) if "…" not in each]
        assert names, kind
        for name in names:
            modules = [module] if module else ["x", JVM, "libruby.so", "php", PYTHON]
            below = (("SSL_read", SSL),) if kind == "tls-handshake" else ()
            stacks_of = [(*below, (name, each)) for each in modules]
            named = {found.mark.kind for found in map(told, stacks_of) if found is not None}
            assert kind in named, name


FASTAPI = "/srv/env/lib/python3.11/site-packages/fastapi"
JINJA = "/srv/env/lib/python3.11/site-packages/jinja2"


def of_files(samples: int, *frames: Tuple[str, str, str]) -> StackCounts:
    """Of functions of Python, with their source files and lines."""
    text = "\n".join(f"{name}\t{PYTHON}\t{file}\t{at}" for name, file, at in frames)
    return StackCounts(4711, "cpu", text, samples, 0)


VIEW = ("users_page", "/srv/shop.py", "12")
PAGE = ("root", "/srv/templates/users.html", "4")


@pytest.mark.parametrize(
    ("inside", "kind"),
    [
        ((PAGE,), "templates"),
        ((PAGE, ("Environment.getattr", f"{JINJA}/environment.py", "485")), "templates"),
        ((("Parser.parse", f"{JINJA}/parser.py", "1034"),), "template-compiling"),
        # What a template calls of the program, and of the packages that this chose.
        ((PAGE, ("price", "/srv/shop.py", "30")), None),
        ((PAGE, ("price", "/srv/shop.py", "30"), ("sre_ucs1_match", "", "")), "regular-expression"),
        ((PAGE, ("QuerySet._fetch_all", "/srv/env/site-packages/django/db/query.py", "9")), None),
        # The language's own library is called by whoever renders.
        ((PAGE, ("escape", "/usr/lib/python3.11/html/__init__.py", "12")), "templates"),
        ((("total", "/srv/jinja2.py", "3"),), None),
        ((("total", "/srv/mako/total.py", "3"),), None),
        ((("serialize_response", f"{FASTAPI}/routing.py", "329"),), "json-writing"),
        (
            (
                ("jsonable_encoder", f"{FASTAPI}/encoders.py", "129"),
                ("BaseModel.model_dump", f"{FASTAPI}/../pydantic/main.py", "400"),
            ),
            "json-writing",
        ),
        ((("BaseModel.__init__", f"{FASTAPI}/../pydantic/main.py", "200"),), None),
    ],
)
def test_files_tell_templates_and_who_writes_json(
    inside: Tuple[Tuple[str, str, str], ...], kind: str
) -> None:
    told_of = kinds(of_files(90, VIEW, *inside))
    assert [each.kind for each in told_of] == ([] if kind is None else [kind])


# ------------------------------------------------------------ shares


def ran(stack: Stack, samples: int, truncated: int = 0, **threads: int) -> StackCounts:
    text = "\n".join(line(*frame) for frame in stack)
    by_tid = {int(name[1:]): count for name, count in threads.items()}
    return StackCounts(4711, "cpu", text, samples, truncated, threads=by_tid)


def found(*counts: StackCounts) -> Stacks:
    first = replace(reports_sample(), stacks=replace(reading(), on_ns=0))
    last = replace(reports_sample(), stacks=replace(reading(*counts), on_ns=10**9))
    made = with_kinds(stacks(first, last), first, last)
    assert made is not None
    return made


def kinds(*counts: StackCounts) -> List[CodeKind]:
    return found(*counts).processes[0].kinds


def test_a_kind_has_all_stacks_that_pass_through_it() -> None:
    other = (("main", NGINX), ("ngx_ssl_handshake", NGINX), ("EVP_PKEY_derive", CRYPTO))
    (kind,) = kinds(ran(HANDSHAKE, 60), ran(other, 20), ran(WORK, 20))
    assert (kind.kind, kind.share_pct, kind.samples) == ("tls-handshake", 80.0, 80)
    assert kind.stack == ["BN_mod_exp_mont_consttime (libcrypto.so.3)", "ngx_ssl_handshake (nginx)"]


def test_a_stack_counts_for_one_kind() -> None:
    faults = (*FULL_COLLECTION, ("exc_page_fault", KERNEL))
    told = kinds(ran(FULL_COLLECTION, 50), ran(faults, 30), ran((*WORK, faults[-1]), 20))
    assert [(each.kind, each.share_pct) for each in told] == [
        *(("garbage-collection", 80.0), ("page-faults", 20.0)),
    ]
    assert told[0].stack == ["MarkSweep::follow_stack (libjvm.so)"]


def test_where_only_the_innermost_function_is_known_the_others_speak_for_it() -> None:
    bare = (HANDSHAKE[-2],)
    (kind,) = kinds(ran(HANDSHAKE[:-1], 40), ran(bare, 50, truncated=50), ran(WORK, 10))
    assert (kind.share_pct, kind.samples) == (90.0, 40)


def test_the_threads_of_a_kind() -> None:
    told = kinds(ran(FULL_COLLECTION, 90, t7=60, t8=30), ran(WORK, 40, t9=40))
    assert [(each.tid, each.comm) for each in told[0].threads] == [(7, None), (8, None)]
    assert told[0].threads[0].share_pct == pytest.approx(66.667, abs=0.001)


def test_samples_of_the_window_only() -> None:
    before = ran(FULL_COLLECTION, 90, t7=60, t8=30)
    after = ran(FULL_COLLECTION, 100, t7=60, t8=40)
    first = replace(reports_sample(), stacks=replace(reading(before), on_ns=0))
    last = replace(reports_sample(), stacks=replace(reading(after), on_ns=10**9))
    made = with_kinds(stacks(first, last), first, last)
    assert made is not None
    (kind,) = made.processes[0].kinds
    assert (kind.samples, [each.tid for each in kind.threads]) == (10, [8])


def test_socket_calls_are_no_code_of_the_program() -> None:
    process = found(ran(SENDS, 60), ran(WORK, 40)).processes[0]
    assert (process.samples, process.in_sockets) == (100, 60)
    assert [(each.function, each.share_pct) for each in process.code] == [("serve", 100.0)]
    nothing = found(ran(SENDS, 60)).processes[0]
    assert (nothing.in_sockets, nothing.code, nothing.kinds) == (60, [], [])
    # A write to a file is.
    writes = (*SENDS[:3], ("vfs_write", KERNEL), ("ext4_file_write_iter", KERNEL))
    assert found(ran(writes, 10)).processes[0].in_sockets == 0


# ------------------------------------------------------------ the verdict


def judged(report: Report, *counts: StackCounts) -> Suspect:
    return with_code(suspect("app-cpu"), replace(report, stacks=found(*counts)))


def report_of(comm: str) -> Report:
    return replace(reports.measured(), targets=[replace(reports.target(4711, comm), cmdline=comm)])


def test_the_kind_leads_the_headline_and_the_remedies() -> None:
    told = judged(report_of("nginx"), ran(HANDSHAKE, 92, t7=92), ran(WORK, 8))
    assert told.headline == (
        "it sleeps: 92 % of its CPU time is TLS handshakes: "
        "BN_mod_exp_mont_consttime ← … ← ngx_ssl_handshake (nginx)"
    )
    assert [kind.kind for kind in told.code_kinds] == ["tls-handshake"]
    says = [action.say for action in told.actions]
    assert "keepalive_timeout" in says[0] and "ssl_session_cache" in says[1]
    assert "ECDSA" in says[2]
    fact = told.evidence[0]
    assert (fact.metric, fact.value, fact.threshold) == ("code_kind_share", 0.92, 0.5)


def test_a_kind_with_less_of_the_time_is_only_listed() -> None:
    told = judged(report_of("nginx"), ran(HANDSHAKE, 40), ran(WORK, 60))
    assert "TLS" not in told.headline and "serve" in told.headline
    assert [kind.kind for kind in told.code_kinds] == ["tls-handshake"]
    assert not any("keepalive" in action.say for action in told.actions)


def test_the_runtime_tells_the_remedy_where_the_server_is_not_known() -> None:
    collects = (("runtime.gcBgMarkWorker", "shop"), ("runtime.gcDrain", "shop"))
    assert "GOGC" in judged(report_of("shop"), ran(collects, 90)).actions[0].say
    told = judged(report_of("java"), ran(FULL_COLLECTION, 90))
    assert "-Xmx" in told.actions[0].say
    assert "sudo jstat -gcutil 4711 1000 5" in [action.run for action in told.actions]


def test_what_short_lived_objects_cost_has_a_remedy_of_its_own() -> None:
    scavenges = (("v8::internal::Scavenger::Process(v8::JobDelegate*)", NODE),)
    assert "semi-space" in judged(report_of("node"), ran(scavenges, 90)).actions[0].say


@pytest.mark.parametrize(("hashing", "says"), [(7, "asynchronous forms"), (8, "more CPUs")])
def test_passwords_that_are_hashed_beside_the_loop_already_need_no_other_form(
    hashing: int, says: str
) -> None:
    """`crypto.scrypt` in Node: libuv's pool does it, and the loop's thread is 7."""
    scrypt = (("uv__worker", NODE), ("EVP_PBE_scrypt_ex", NODE), ("scryptBlockMix", NODE))
    report = report_of("node")
    assert report.time is not None
    loops = [Loop(4711, 7, "node", 100, BusyTime(1.0, 1.0))]
    report = replace(report, time=replace(report.time, loops=loops))
    told = judged(report, ran(scrypt, 90, **{f"t{hashing}": 90}))
    assert says in told.actions[0].say


def test_of_a_program_that_the_verdict_names_all_processes_are_told() -> None:
    """Of three workers one is in other code than the two."""
    workers = [replace(ran(HANDSHAKE, 30, t7=30), pid=1), replace(ran(HANDSHAKE, 30, t8=30), pid=2)]
    report = report_of("nginx")
    targets = [replace(report.targets[0], pid=pid) for pid in (1, 2, 3)]
    told = judged(replace(report, targets=targets), replace(ran(WORK, 40), pid=3), *workers)
    assert told.headline.startswith("it sleeps: 60 % of its CPU time is TLS handshakes: ")
    (kind,) = told.code_kinds
    assert (kind.samples, [(each.tid, each.share_pct) for each in kind.threads]) == (
        *(60, [(7, 50.0), (8, 50.0)]),
    )
    assert [round(each.share_pct) for each in told.code] == [60, 60, 40]
    assert told.evidence[0].says.startswith("60 % of 100 samples are TLS handshakes")
    one = with_code(
        replace(suspect("app-cpu"), pids=frozenset((3,))),
        replace(report, targets=targets, stacks=found(*workers, replace(ran(WORK, 40), pid=3))),
    )
    assert [round(each.share_pct) for each in one.code] == [100]


def test_a_program_s_own_source_stays_in_the_headline() -> None:
    own = "\n".join(["verify\tnode\t/srv/auth.js\t12", line("pcre2_match_8", "libpcre2-8.so.0")])
    told = judged(report_of("node"), StackCounts(4711, "cpu", own, 90, 0))
    assert "verify (auth.js:12); 100 % of its CPU time is regular expressions" in told.headline


def test_what_is_written_at_once_counts_with_the_waits_for_its_disk() -> None:
    """A service that calls fsync for each request: a part of both, and most of them together."""
    synced = (*WORK, ("fdatasync", LIBC), ("vfs_fsync_range", KERNEL))
    quick, slow = (ill.service(ill.served(500, cpu=90.0 - disk, disk=disk)) for disk in (5.0, 45.0))
    counts = (ran(synced, 40), ran(WORK, 60))
    assert "fsync" not in judged(quick, *counts).headline
    # Who reads from the disk, and seldom calls it, waits for something else there.
    assert "fsync" not in judged(slow, ran(synced, 5), ran(WORK, 95)).headline
    told = judged(slow, *counts)
    assert "40 % of its CPU time is writing files to the disk at once (fsync)" in told.headline
    assert "; requests wait for the disk for 35 % of their time" in told.headline
    assert "fsync once for many changes" in told.actions[0].say


def test_who_writes_json_is_told_with_the_size_of_replies() -> None:
    """The program's function stays, of a compiled program too."""
    handler = "main.listUsers\tshop\t/srv/main.go\t7\nencoding/json.Marshal\tshop\t\t"
    served = replace(ill.connection(), pid=4711, requests=40, bytes_out=26_000_000)
    asked = replace(served, role="upstream", requests=10, bytes_out=700)
    report = replace(report_of("shop"), connections=[served, asked])
    told_of = judged(report, StackCounts(4711, "cpu", handler, 90, 0))
    assert "main.listUsers (main.go:7); 100 % of its CPU time is writing JSON" in told_of.headline
    assert "fewer rows" in told_of.actions[0].say
    (fact,) = (each for each in told_of.evidence if each.metric == "reply_bytes")
    assert (fact.value, fact.says) == (650_000.0, "a reply has 650,000 bytes on average")
    none = judged(replace(report, connections=[asked]), StackCounts(4711, "cpu", handler, 90, 0))
    assert not any(each.metric == "reply_bytes" for each in none.evidence)


@pytest.mark.parametrize(("server", "says"), [("uvicorn", "orjson"), ("node", "fewer rows")])
def test_json_is_written_faster_where_a_package_does_so(server: str, says: str) -> None:
    dumps = (("encoder_call", "_json.so"),)
    assert says in judged(report_of(server), ran(dumps, 90)).actions[0].say


def test_what_a_kept_connection_saves() -> None:
    accepted = replace(ill.quiet_listener(), pids=[4711], accepted=500, accepted_by={"4711": 500})
    report = replace(ill.service(ill.served(500), ill.thread(user=1.0)), listeners=[accepted])
    told = judged(report, ran(HANDSHAKE, 50), ran(WORK, 50))
    (fact,) = (each for each in told.evidence if each.metric == "handshake_us")
    # Half of ten seconds, for 500 connections.
    assert fact.value == pytest.approx(10_000.0)
    assert "500 connections" in fact.says and "save up to 50 %" in fact.says
    # Without accepted connections there is none to keep.
    none = judged(replace(report, listeners=[]), ran(HANDSHAKE, 50), ran(WORK, 50))
    assert not any(each.metric == "handshake_us" for each in none.evidence)


def test_of_socket_calls_alone_no_code_is_named() -> None:
    assert judged(report_of("nginx"), ran(SENDS, 90)).code == ()
    told = judged(report_of("nginx"), ran(SENDS, 60), ran(WORK, 40))
    assert "100 % in serve ← main (app), of 40 samples" in told.evidence[0].says
    assert "60 more in socket calls" in told.evidence[0].says


def test_views_say_what_kinds_ran() -> None:
    shown = found(ran(HANDSHAKE, 60), ran(SENDS, 30), ran(WORK, 10))
    report = replace(report_of("nginx"), stacks=shown)
    says = " ".join(render(report, 120).split())
    assert "60.0 % TLS handshakes: BN_mod_exp_mont_consttime" in says
    assert "30.0 % calls on sockets and in pollers" in says
    page = text_of(render_page(report, told_over_time()))
    assert "TLS handshakes60.0BN_mod_exp_mont_consttime" in page
    lines = [str(each.text) for each in tree_page(report, frozenset(), 100).lines]
    assert any("TLS handshakes: BN_mod_exp" in each for each in lines)
    assert words.code_kinds(found(ran(WORK, 10))) == []


def test_expressions_of_postgresql_are_those_of_a_query() -> None:
    """Its own engine cannot be changed for RE2."""
    look, change = remedies("code-regular-expression", "postgresql", pid=1)
    assert look.effect == "looks" and "pg_stat_activity" in (look.run or "")
    assert "gin_trgm_ops" in change.say and "RE2" not in change.say

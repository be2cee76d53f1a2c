"""What documents say from the source: `python -m tests.repo.pages` writes it anew."""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, Iterable, List

from tests.repo import remedy_table as remedies
from tests.repo.source_tree import ROOT
from udsprobe.model.code.marks import KINDS
from udsprobe.rules.causes import CAUSES
from udsprobe.rules.code_kinds import KIND_WORDS
from udsprobe.views.fields.columns import CONNECTIONS, FINDINGS, LISTENERS, SYSCALLS, TARGETS
from udsprobe.views.metrics.catalogue import CATALOGUE, Metric

# Function and module, as they are met.
EXAMPLES = {
    "memory-reclaim": "`try_to_free_mem_cgroup_pages`, `do_swap_page` of the kernel",
    "memory-compaction": "`compact_zone`, `do_huge_pmd_anonymous_page` of the kernel",
    "garbage-collection": "`GenMarkSweep::…`, `G1…` (Java), `runtime.gcDrain` (Go), "
    "`v8::internal::MarkCompactCollector::…`, `…::Scavenger::…` (Node), `gc_collect_main` "
    "(Python), `gc_marks` (Ruby), `zend_gc_collect_cycles` (PHP), `SVR::gc_heap::…` (.NET)",
    "tls-handshake": "`SSL_do_handshake`, `ngx_ssl_handshake`, "
    "`crypto/tls.(*Conn).serverHandshake`; `EVP_DigestSignFinal` inside of reads and writes of TLS",
    "password-hashing": "`PKCS5_PBKDF2_HMAC`, `EVP_PBE_scrypt`, `crypt`, `argon2id_…`, "
    "`password_hash` (PHP), `OpenSSL::KDF.…` (Ruby)",
    "compression": "`deflate`, `BrotliEncoderCompressStream`, `ZSTD_compressStream2`, "
    "`gzencode` (PHP), `Zlib::Deflate…` (Ruby)",
    "json-writing": "`v8::internal::JsonStringifier::…` (Node), `encoding/json.Marshal` (Go), "
    "`encoder_listencode_obj` (Python), `json_encode` (PHP), `JSON.generate` (Ruby)",
    "json-reading": "`v8::internal::JsonParser<…>` (Node), `encoding/json.Unmarshal` (Go), "
    "`scan_once_unicode` (Python), `json_decode` (PHP)",
    "template-compiling": "`text/template/parse.…` (Go); those of Jinja2's lexer, parser and "
    "compiler, and of EJS, Handlebars, Mako and Pug, by their files; `ERB::Compiler#compile`",
    "templates": "`text/template.…`, `html/template.…` (Go), `org.thymeleaf.…` (Java); functions "
    "in files of Django, EJS, ERB, Handlebars, Jinja2 and Mako, and in templates; `ERB#result`",
    "regular-expression": "`pcre2_match_8`, `preg_match` (PHP), `Regexp#match` (Ruby), "
    "`sre_ucs1_match`, `regexp.(*Regexp).…`, `RegExp:…` of Node's map file",
    "text-encoding": "`node::StringBytes::Size`, `v8::String::Utf8Length` (Node)",
    "tls-records": "`SSL_read`, `SSL_write`, `crypto/tls.(*Conn).Write`",
    "disk-sync": "`vfs_fsync_range`, `…_sys_fdatasync` of the kernel",
    "process-creation": "`kernel_clone`, `do_execve…`, `do_exit` of the kernel",
    "kernel-locks": "`futex_wake`, `native_queued_spin_lock_slowpath` of the kernel",
    "page-faults": "`exc_page_fault`, `handle_mm_fault` of the kernel",
}


def of_verdicts(text: str) -> str:
    """docs/verdicts.md: the causes, and the thresholds with their reasons."""
    causes = (
        f"| `{each.name}` | {each.shape} | {each.likely} | {each.look} |"
        for each in CAUSES.values()
    )
    text = _with_rows(_with_rows(text, "Causes", causes), "Thresholds", threshold_rows())
    return _with_rows(text, "Kinds of code", kind_rows())


def kind_rows() -> List[str]:
    """Every kind of code in the order in which they are tried, with marks of each."""
    return [f"| `{kind}` | {KIND_WORDS[kind]} | {EXAMPLES[kind]} |" for kind in KINDS]


def of_screen(text: str) -> str:
    """docs/screen.md: the columns of each table."""
    tables = {
        "Listeners": LISTENERS,
        "System calls": SYSCALLS,
        "Targets": TARGETS,
        "Findings": FINDINGS,
        "Connections": CONNECTIONS,
    }
    for heading, columns in tables.items():
        rows = (f"| {column.title} | {column.says} |" for column in columns.values())
        text = _with_rows(text, heading, rows)
    return text


def of_schema(text: str) -> str:
    """docs/report.schema.json: the names of causes, and their classes."""
    schema: Dict[str, Any] = json.loads(text)
    for kind in ("Verdict", "RunnerUp"):
        schema["$defs"][kind]["properties"]["cause"]["enum"] = list(CAUSES)
    classes = schema["$defs"]["Verdict"]["properties"]["class"]
    named = {cause.class_ for cause in CAUSES.values()}
    kept = [each for each in classes["enum"] if each in named]
    classes["enum"] = [*kept, *sorted(named - set(kept))]
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def of_remedies(text: str) -> str:
    """docs/remedies.md: the table."""
    before, rest = text.split(remedies.BEGIN)
    after = rest.split(remedies.END)[1]
    return f"{before}{remedies.BEGIN}\n\n{remedies.tables().strip()}\n\n{remedies.END}{after}"


def of_metrics(text: str) -> str:
    """docs/metrics.md: the row of each metric that has one; where a new one belongs is chosen."""
    row = re.compile(r"^\| `(udsprobe_\w+)` .*$", re.MULTILINE)
    return row.sub(lambda found: _metric_row(found[1], found[0]), text)


PAGES: Dict[str, Callable[[str], str]] = {
    "verdicts.md": of_verdicts,
    "screen.md": of_screen,
    "report.schema.json": of_schema,
    "remedies.md": of_remedies,
    "metrics.md": of_metrics,
}


def threshold_rows() -> List[str]:
    """Every limit of the rules, with its value and the comment above it."""
    source = (ROOT / "udsprobe" / "rules" / "thresholds.py").read_text(encoding="utf-8")
    rows, reason = [], []
    for line in source.splitlines():
        if line.startswith("# --"):
            reason = []
        elif line.startswith("# "):
            reason.append(line[2:])
        elif re.match(r"[A-Z_]+ = ", line):
            name, value = line.split(" = ")
            rows.append(f"| `{name}` | {value} | {' '.join(reason)} |")
            reason = []
    return rows


def _with_rows(text: str, heading: str, rows: Iterable[str]) -> str:
    """With these rows in the first table below a heading."""
    start = text.index("|---|", text.index(f"\n## {heading}\n"))
    start = text.index("\n", start) + 1
    old = re.compile(r"(\|.*\n)*").match(text, start)
    assert old is not None
    return text[:start] + "".join(f"{row}\n" for row in rows) + text[old.end() :]


def _metric_row(name: str, old: str) -> str:
    metric = CATALOGUE.get(name)
    return old if metric is None else _row(name, metric)


def _row(name: str, metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    otel = f"`{metric.otel}` {metric.otel_unit}"
    return f"| `{name}` {metric.kind} | {otel} | {labels} | {metric.help} |"


def main() -> None:
    """Write them all."""
    for name, made in PAGES.items():
        path = ROOT / "docs" / name
        path.write_text(made(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

"""`udsprobe compare` on files: what it reads, what it refuses, and the documents it prints."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import typing
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import jsonschema
import pytest

from tests.unit.compared import STAGES, made, scattered
from udsprobe.cli import main
from udsprobe.compare import comparison as comparison_module
from udsprobe.compare.comparison import Comparison, Figure, Noise, Side

SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "compare.schema.json"
SCHEMA: Dict[str, Any] = json.loads(SCHEMA_FILE.read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
PAGE = SCHEMA_FILE.with_name("compare.md").read_text("utf-8")

Run = Callable[..., Tuple[int, str, str]]


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command: exit code, stdout, stderr."""

    def run(*arguments: str) -> Tuple[int, str, str]:
        code = main(["compare", *arguments])
        return (code, *capsys.readouterr())

    return run


def lines(path: Path, documents: List[Dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in documents))
    return str(path)


def indented(path: Path, document: Dict[str, Any]) -> str:
    path.write_text(json.dumps(document, indent=2) + "\n")
    return str(path)


def test_two_files_of_intervals(compare: Run, tmp_path: Path) -> None:
    a = lines(tmp_path / "a.jsonl", scattered(1, scatter=0.005))
    b = lines(tmp_path / "b.jsonl", scattered(2, stages={**STAGES, "send": 6.0}, scatter=0.005))
    code, out, err = compare(a, b)
    assert (code, err) == (0, "")
    assert out.startswith("B is 15 % faster (13 to 18), nearly all of it send calls: mean 40")
    assert max(map(len, out.splitlines())) <= 80
    for said in ("mean latency", "p999", "before accept", "epoll_wait", "20 intervals"):
        assert said in out, said


def test_one_document_over_many_lines(compare: Run, tmp_path: Path) -> None:
    one = indented(tmp_path / "a.json", made())
    code, out, _ = compare(one, one, "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["a"]["intervals"], found["a"]["percentiles_from"]) == (0, "window")
    assert found["noise"]["taken_from"] is None


def test_repeated_runs_with_commas(compare: Run, tmp_path: Path) -> None:
    files = [indented(tmp_path / f"{n}.json", made()) for n in range(3)]
    code, out, _ = compare(",".join(files), files[0], "--json")
    assert code == 0
    assert json.loads(out)["a"]["sources"] == files


def test_a_comma_in_a_name(compare: Run, tmp_path: Path) -> None:
    name = indented(tmp_path / "a,b.json", made())
    code, out, _ = compare(name, name, "--json")
    assert (code, json.loads(out)["b"]["sources"]) == (0, [name])


def test_a_pipe_is_read(compare: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lines, args=(pipe, scattered(1, 5)))
    writer.start()
    code, out, _ = compare(str(pipe), indented(tmp_path / "b", made()), "--json")
    writer.join()
    assert (code, json.loads(out)["a"]["intervals"]) == (0, 5)


def test_documents_validate(compare: Run, tmp_path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    many = lines(tmp_path / "a", scattered(1, 9))
    one = indented(tmp_path / "b", made(0))
    for a, b in ((many, many), (many, one), (one, one), (f"{many},{many}", one)):
        code, out, _ = compare(a, b, "--json")
        assert code == 0
        VALIDATOR.validate(json.loads(out))
        assert list(json.loads(out)) == list(SCHEMA["properties"])


@pytest.mark.parametrize("kind", [Comparison, Side, Figure, Noise])
def test_the_schema_has_each_field(kind: type) -> None:
    rules = SCHEMA if kind is Comparison else SCHEMA["$defs"][kind.__name__]
    names = [field.name for field in dataclasses.fields(kind)]
    if kind is Comparison:
        names = ["schema", *names[:-1]]
    assert list(rules["properties"]) == names == rules["required"]
    for name, hint in typing.get_type_hints(kind).items():
        rule = rules["properties"][name]
        nullable = "null" in rule.get("type", ()) or None in rule.get("enum", ())
        assert nullable == (type(None) in typing.get_args(hint)), name
        assert rule["description"].endswith("."), name


def test_no_dataclass_is_forgotten() -> None:
    here = vars(comparison_module).values()
    known = {each.__name__ for each in here if dataclasses.is_dataclass(each)}
    assert known == {"Comparison", *SCHEMA["$defs"]}


def test_the_page_names_every_figure(compare: Run, tmp_path: Path) -> None:
    one = indented(tmp_path / "a", made())
    found = json.loads(compare(one, one, "--json")[1])
    for figure in [*found["figures"], *found["stages"]]:
        name = figure["name"]
        assert f"`{name}`" in PAGE or name in ("latency_p90", "latency_p99"), name


NEWER = {**made(), "schema": "udsprobe.report/2"}

BAD: List[Tuple[str, bytes, str, str]] = [
    ("empty", b"", "not-a-report", "it is empty"),
    ("blank", b"\n\n", "not-a-report", "it is empty"),
    ("text", b"hello\n", "not-a-report", "is not JSON"),
    ("binary", bytes(range(256)), "not-a-report", "is not JSON"),
    ("cut", json.dumps(made(), indent=2).encode()[:3000], "not-a-report", "ends in the middle"),
    (
        "cut line",
        json.dumps(made()).encode() + b"\n" + json.dumps(made()).encode()[:3000],
        "not-a-report",
        "line 2 ends in the middle",
    ),
    ("number", b"7\n", "not-a-report", "is JSON, but not a 'udsprobe.report/1'"),
    ("list", b"[1, 2]\n", "not-a-report", "is JSON, but not a 'udsprobe.report/1'"),
    ("other", b'{"schema": "udsprobe.listeners/1"}', "not-a-report", "udsprobe.listeners/1"),
    ("foreign", b'{"schema": 3}', "not-a-report", "is JSON, but not a"),
    ("newer", json.dumps(NEWER).encode(), "newer-report", "udsprobe.report/2"),
    ("newer, indented", json.dumps(NEWER, indent=1).encode(), "newer-report", "report/2"),
    ("fields", b'{"schema": "udsprobe.report/1"}', "not-a-report", "is missing"),
    ("nan", b'{"schema": "udsprobe.report/1", "a": NaN}', "not-a-report", "NaN"),
    ("deep", b"[" * 100_000, "not-a-report", "is not JSON"),
    ("digits", b'{"a": ' + b"9" * 10_000 + b"}", "not-a-report", "no"),
    ("utf-16", json.dumps(made()).encode("utf-16"), "not-a-report", "is not JSON"),
    ("hostile", b'{"schema": "\\u001b[2J\\nx"}', "not-a-report", "\\x1b[2J"),
]


@pytest.mark.parametrize(("content", "slug", "says"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_bad_file_is_one_line(
    compare: Run, tmp_path: Path, content: bytes, slug: str, says: str
) -> None:
    good = indented(tmp_path / "good.json", made())
    bad = tmp_path / "bad.json"
    bad.write_bytes(content)
    for pair in ((good, str(bad)), (str(bad), good)):
        code, out, err = compare(*pair)
        assert (code, out) == (6, "")
        assert err.startswith(f"udsprobe: error[{slug}]: ")
        assert says in err
        assert err.count("\n") == 1 and err.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("missing.json", "no-such-file"),
        ("", "no-such-file"),
        (".", "file-unreadable"),
        ("a\0b", "file-unreadable"),
        ("n" * 300, "file-unreadable"),
        ("good.json/x", "file-unreadable"),
        ("good.json,", "no-such-file"),
        ("/dev/zero", "not-a-report"),
    ],
)
def test_no_file_is_one_line(
    compare: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, slug: str
) -> None:
    monkeypatch.chdir(tmp_path)
    indented(tmp_path / "good.json", made())
    code, out, err = compare("good.json", name)
    assert (code, out) == (6, "")
    assert err.startswith(f"udsprobe: error[{slug}]: ") and err.count("\n") == 1


def test_json_and_html_exclude_each_other(compare: Run, tmp_path: Path) -> None:
    one = indented(tmp_path / "a", made())
    code, _, err = compare(one, one, "--json", "--html", "x")
    assert code == 2 and "cannot be combined" in err


def test_missing_libraries_are_named(
    compare: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("udsprobe.views.html")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    one = indented(tmp_path / "a", made())
    code, _, err = compare(one, one, "--html", str(tmp_path / "out.html"))
    assert code == 2
    assert "error[no-html-libraries]: --html needs matplotlib" in err
    assert f"{sys.executable} -m pip install jinja2 matplotlib\n" in err


def test_a_page_that_cannot_be_written(compare: Run, tmp_path: Path) -> None:
    one = indented(tmp_path / "a", made())
    code, _, err = compare(one, one, "--html", str(tmp_path / "no" / "out.html"))
    assert code == 2 and "error[output-not-writable]" in err

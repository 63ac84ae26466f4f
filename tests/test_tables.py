"""Every figure of README.md and docs is that of the stored rows; and the machinery that sees to it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from benchmarks import tables

DOCUMENTS = [str(path.relative_to(tables.ROOT)) for path in tables.documents()]


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Rows of their own, in r.csv."""
    (tmp_path / "r.csv").write_text(
        "status,method,run,tol,seconds,before,peak\n"
        "measured,ours,0,1e-3,2.0,1048576,5242880\n"
        "measured,ours,1,1e-3,4.0,1048576,7340032\n"
        "measured,peer,0,0.001,9.0,,\n"
        "measured,peer,0,1e-2,3.0,,\n"
        "failed,peer,1,1e-3,7.0,,\n"
    )
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    tables._read.cache_clear()
    yield
    tables._read.cache_clear()


def cell(text: str) -> str:
    """What a cell is written as."""
    return tables.render(f"r = r.csv\n\n{{{text}}}\n")[1].rstrip("\n")


def test_figures_in_the_documents_are_those_of_the_rows():
    for document in tables.documents():
        text, new = tables.rewrite(document)
        assert text == new, (
            f"{document.name}: edit its template in benchmarks/tables, then run python -m benchmarks tables"
        )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_measurement_names_its_rows(document):
    found = tables.unmarked((tables.ROOT / document).read_text(encoding="utf-8"))
    assert not found, f"{document}: put these into a block of rows, or mark them:\n" + "\n\n".join(found)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("seconds:1 method=peer tol=1e-3", "9.0"),  # 0.001 and 1e-3 are the same number; failed rows are left out
        ("seconds:2 median method=ours", "3.00"),
        ("r.seconds:0 max", "9"),
        ("seconds:0 argmin=peak method=ours", "2"),
        ("peak-before:0MiB max method=ours", "6"),
        ("1-tol:1p max method=ours", "99.9"),
        ("seconds:1 min method=ours|peer seconds>2 tol=0.01", "3.0"),
        ("seconds min method=ours seconds>5 else='> 5'", "> 5"),
        ("peak median method=peer tol=1e-2 else=-", "-"),
        ("seconds:2 method=peer tol=1e-3 / seconds median method=ours", "3.00"),
        ("seconds:2 against=ours each=tol tol=1e-3", "3.00"),
        ("seconds:0 count", "4"),
        ("seconds status=failed", "7"),
        ("peak:0, first method=ours", "5 242 880"),
        ("tol:1e first method=ours", "1e-3"),
        ("before:t first method=ours", "1048576"),
        ("before first method=ours", "1.04858e+06"),
    ],
)
def test_a_cell_is_written_as_the_rows_say(rows, text, written):
    assert cell(text) == written


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("seconds:1 method=nobody", "no row of r.csv has method=nobody"),
        ("seconds:1 method=nobody else=-", "no row"),  # a wrong name is never taken for a result
        ("seconds:1 method=ours", "2 values"),
        ("minutes:1 max", "no column 'minutes'"),
        ("seconds:1 max name=x", "no column 'name'"),
        ("peak:1 median", "no value"),  # not that of the rows which happen to have one
        ("method:1 method=peer tol=1e-2", "cannot write"),
        ("seconds:1q max", "cannot write"),
    ],
)
def test_a_wrong_cell_is_an_error(rows, text, fault):
    with pytest.raises(tables.Fault, match=fault):
        cell(text)


def test_a_line_is_written_for_each_file_that_has_its_rows(rows, tmp_path):
    for name, day, what in (("s_later.csv", 3, "a"), ("s.csv", 1, "a"), ("s_again.csv", 2, "b")):
        (tmp_path / name).write_text(f"status,what,date,seconds\nmeasured,{what},2026-01-0{day},{day}\n")
    template = "s* = s*.csv\nr = r.csv\n\n| what |\n| {s.date what=a} {s.seconds:1} {r.seconds:0 max} |\n"
    files, text = tables.render(template)
    assert files == ["r.csv", "s.csv", "s_again.csv", "s_later.csv"]
    assert text == "| what |\n| 2026-01-01 1.0 9 |\n| 2026-01-03 3.0 9 |\n"
    with pytest.raises(tables.Fault, match="has what=c"):
        tables.render("s* = s*.csv\n\n{s.seconds max what=c}\n")
    with pytest.raises(tables.Fault, match=r"matches t\*"):
        tables.render("s* = t*.csv\n\n{s.seconds max}\n")


def test_a_missing_file_of_rows_is_an_error(rows):
    with pytest.raises(tables.Fault, match="there is no x"):
        tables.render("r = x.csv\n\n{seconds max}\n")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("| data | ours |\n|---|---|\n| a | 3.1 s |\n", 1),
        ("| data | ours |\n|---|---|\n| a | 0.912 |\n", 1),
        ("It takes 4 s.\n", 1),
        ("It takes four seconds, with `timeout=4 s`.\n\n```\n4 s\n```\n", 0),
        ("Text:\n\n    indented 4 s\n\nIt takes 5 s.\n", 1),
        ("<!-- rows x: r.csv -->\nIt takes 4 s.\n<!-- end -->\n", 0),
        ("<!-- figures from: r.csv -->\nIt takes 4 s.\n", 0),
        ("<!-- figures from: gone.csv -->\nIt takes 4 s.\n", 1),
        ("<!-- printed: Table 1 -->\nIt takes 4 s.\n\nAnd 5 s.\n", 1),  # a marker holds for one paragraph
    ],
)
def test_measurements_without_rows_are_found(rows, text, count):
    assert len(tables.unmarked(text)) == count


def test_the_command_finds_a_figure_that_was_edited(tmp_path):
    """On a copy of README.md."""
    readme = (tables.ROOT / "README.md").read_text(encoding="utf-8")
    figure = re.search(r"\| (\d+\.\d\d) s \|", readme)
    assert figure is not None
    edited = readme.replace(figure.group(), f"| {float(figure.group(1)) + 0.1:.2f} s |")
    (tmp_path / "README.md").write_text(edited, encoding="utf-8")
    code = (
        "from pathlib import Path; from benchmarks import tables; from benchmarks.cli import main;"
        f"tables.ROOT = Path({str(tmp_path)!r}); raise SystemExit(main(['tables', *__import__('sys').argv[1:]]))"
    )
    checked, written = (
        subprocess.run([sys.executable, "-c", code, *option], cwd=tables.ROOT, capture_output=True, text=True)
        for option in (["--check"], [])
    )
    assert checked.returncode == 1
    assert "README.md" in checked.stdout
    assert written.returncode == 0, written.stdout
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == readme

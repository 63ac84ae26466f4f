"""Figures of README.md and docs, written from the stored rows: ``python -m benchmarks tables``.

A document has blocks; only what is between the two comments is generated:

    <!-- rows NAME: multinomial.csv; edit benchmarks/tables/DOCUMENT -->
    ...
    <!-- end -->

The block's template is the section ``# NAME`` of ``benchmarks/tables/DOCUMENT`` (the same path as the document's). It
begins with the sources, one a line, ``alias = FILE.csv[,FILE.csv] key=value ...``, files under ``benchmarks/results``;
after an empty line comes Markdown with cells:

    {alias.column:format function key=value key<value ... else=text}

* ``alias.`` may be left out if there is one source. ``column`` is a column of the rows, or ``a-b`` for a difference.
* Rows are those with the given values (``key=a|b``: one of several; ``!=``, ``<``, ``<=``, ``>``, ``>=``; numbers
  compare as numbers). Rows that were not measured are left out, unless ``status=`` is given.
* ``function``: ``median``, ``mean``, ``min``, ``max``, ``first``, ``last``, ``sum``, ``count``, or ``argmin=column``,
  ``argmax=column`` for the value where another column is least or largest. Without one, a single value is expected.
* ``format``: number of decimals, then a scale: ``:2``, ``:1p`` (times 100), ``:0MiB``, ``:1GiB``, ``:2m`` (in
  thousandths), ``:0u`` (in millionths), ``:1M`` (in millions), or ``:0,`` (thousands apart), ``:2e`` (significant
  digits of a power of ten). ``:t`` is the text of the row, for names that look like numbers. Without a format, numbers
  have six digits.
* ``else``: what is written if no row is below or above the given bounds, if the row has no value, and for ``mean`` and
  ``median`` if one of the rows has none.
* ``{x / y}``: a ratio of two cells, with the format of the first.
* ``against=METHOD each=key,key``: in place of the values, one ratio for each group of rows with the same ``key``: the
  least value of the other methods divided by the value of METHOD.

An alias with a star, ``alias* = PATTERN.csv``, stands for each file that the pattern matches, in the order of their
first dates: a line with ``{alias.`` is written once for each file that has its rows. At least one must have them.

A cell that finds no row, or several values without a function, is an error. Standard library only.
"""

from __future__ import annotations

import csv
import math
import operator
import re
import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Fault", "documents", "render", "rewrite", "unmarked"]

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TEMPLATES = ROOT / "benchmarks" / "tables"

_BLOCK = re.compile(r"<!-- rows ([\w-]+)(?:: [^>]*)? -->\n(.*?)<!-- end -->", re.S)
_CELL = re.compile(r"\{([^{}]+)\}")
_FILTER = re.compile(r"(.+?)(!=|<=|>=|=|<|>)(.*)", re.S)
_FORMAT = re.compile(r"(\d)(p|KiB|MiB|GiB|m|u|M|e|,|)")
_SCALES = {"p": 1e2, "KiB": 2.0**-10, "MiB": 2.0**-20, "GiB": 2.0**-30, "m": 1e3, "u": 1e6, "M": 1e-6}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
    "min": min,
    "max": max,
    "sum": math.fsum,
    "count": len,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
}

Row = dict[str, str]


class Fault(ValueError):
    """A template, a marker or a row that is wrong; the message says where."""


class _Absent(Fault):
    """A cell that finds no row."""


@dataclass(frozen=True)
class _Source:
    """Rows of one or several files, with the values that all of them must have."""

    files: tuple[str, ...]
    filters: tuple[str, ...]

    def rows(self) -> list[Row]:
        return [row for file in self.files for row in _read(file)]


@cache
def _read(file: str) -> list[Row]:
    path = RESULTS / file
    if not path.is_file():
        raise Fault(f"there is no {file} in benchmarks/results")
    with path.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


# --- cells ------------------------------------------------------------------------------------------------------------


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _select(rows: list[Row], filters: Sequence[str]) -> tuple[list[Row], bool]:
    """The rows that pass, and whether some passed all equalities."""
    conditions = []
    for text in filters:
        match = _FILTER.fullmatch(text)
        if match is None:
            raise Fault(f"expected key=value, got {text!r}")
        conditions.append(match.groups())
    if not any(key == "status" for key, _, _ in conditions):
        conditions.append(("status", "=", "measured"))
    for key, _, _ in conditions:
        if not any(key in row for row in rows):
            raise Fault(f"no column {key!r}")
    found = 0
    kept = []
    for row in rows:
        values = [(_number(row.get(key) or ""), sign, value) for key, sign, value in conditions]
        if not all(
            (have in map(_number, value.split("|"))) == (sign == "=")
            for have, sign, value in values
            if sign in ("=", "!=")
        ):
            continue
        found += 1
        if all(
            isinstance(have, float) and not math.isnan(have) and _COMPARE[sign](have, float(value))
            for have, sign, value in values
            if sign in _COMPARE
        ):
            kept.append(row)
    return kept, found > 0


def _value(row: Row, column: str) -> float | str | None:
    if column in row:
        return None if row[column] in ("", None) else _number(row[column])
    first, sign, second = column.partition("-")
    if not sign:
        raise Fault(f"no column {column!r}; there are {', '.join(row)}")
    a, b = (part if isinstance(part := _number(text), float) else _value(row, text) for text in (first, second))
    return a - b if isinstance(a, float) and isinstance(b, float) else None


def _term(tokens: Sequence[str], sources: dict[str, _Source]) -> tuple[Any, str, str | None]:
    """The value, its format, and what to write instead of no value."""
    what, *rest = tokens
    column, _, form = what.partition(":")
    alias, dot, after = column.partition(".")
    if dot and alias in sources:
        column = after
    elif len(sources) == 1:
        (alias,) = sources
    else:
        raise Fault(f"{what!r} names none of the sources {', '.join(sources)}")
    source, function, arg, other, filters = sources[alias], None, None, None, []
    ours, each = "", "run"
    for token in rest:
        key, sign, value = token.partition("=")
        if token in _FUNCTIONS:
            function = token
        elif sign and key in ("argmin", "argmax"):
            arg = (key, value)
        elif sign and key == "else":
            other = value
        elif sign and key == "against":
            ours = value
        elif sign and key == "each":
            each = value
        else:
            filters.append(token)
    given = {m.group(1) for m in map(_FILTER.fullmatch, filters) if m}
    defaults = [f for f in source.filters if (m := _FILTER.fullmatch(f)) and m.group(1) not in given]
    rows, some = _select(source.rows(), [*defaults, *filters])
    if not some:
        raise _Absent(f"no row of {', '.join(source.files)} has {' '.join([*defaults, *filters])}")
    if function == "count":
        return float(len(rows)), form, other
    if arg is not None:
        rows = [row for row in rows if isinstance(_value(row, arg[1]), float)]
        if rows:
            choose = min if arg[0] == "argmin" else max
            rows = [choose(rows, key=lambda row: _value(row, arg[1]))]  # type: ignore[type-var, return-value]
    if ours:
        values: list[Any] = _against(rows, column, ours, each.split(","))
    elif form == "t":
        values = [row[column] for row in rows if row.get(column)]
    else:
        values = [value for value in (_value(row, column) for row in rows) if value is not None]
    incomplete = function in ("mean", "median") and not ours and len(values) < len(rows)
    if not values or incomplete:
        if other is None:
            raise Fault(f"{' '.join(tokens)}: no value, and no else=")
        return None, form, other
    if function is not None:
        return _FUNCTIONS[function](values), form, other
    if len(set(values)) > 1:
        raise Fault(f"{' '.join(tokens)}: {len(set(values))} values ({', '.join(map(str, values[:4]))}, ...)")
    return values[0], form, other


def _against(rows: list[Row], column: str, ours: str, keys: list[str]) -> list[float]:
    """The least value of the others divided by that of ours, for each group that has both."""
    groups: dict[tuple[float | str, ...], tuple[list[float], list[float]]] = {}
    for row in rows:
        value = _value(row, column)
        if isinstance(value, float):
            pair = groups.setdefault(tuple(_number(row.get(key) or "") for key in keys), ([], []))
            pair[row["method"] != ours].append(value)
    return [min(others) / statistics.median(own) for own, others in groups.values() if own and others]


def _cell(text: str, sources: dict[str, _Source]) -> str:
    tokens = shlex.split(text)
    if "/" in tokens:
        place = tokens.index("/")
        value, form, other = _term(tokens[:place], sources)
        divisor, _, other_divisor = _term(tokens[place + 1 :], sources)
        if value is not None and divisor is not None:
            value = float(value) / float(divisor)
        else:
            value, other = None, other or other_divisor
    else:
        value, form, other = _term(tokens, sources)
    return str(other) if value is None else _format(value, form)


def _format(value: Any, form: str) -> str:
    if form in ("", "t"):
        return f"{value:g}" if isinstance(value, float) else str(value)
    match = _FORMAT.fullmatch(form)
    if match is None or not isinstance(value, float):
        raise Fault(f"cannot write {value!r} as {form!r}")
    digits, scale = int(match[1]), match[2]
    if scale == "e":
        mantissa, _, exponent = f"{value:.{max(digits - 1, 0)}e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    if scale == ",":
        return f"{value:,.{digits}f}".replace(",", " ")
    return f"{value * _SCALES.get(scale, 1.0):.{digits}f}"


# --- documents --------------------------------------------------------------------------------------------------------


def documents() -> list[Path]:
    """README.md and all pages under docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def render(template: str) -> tuple[list[str], str]:
    """The files of rows that a template names, and its Markdown with the figures in place."""
    head, _, body = template.strip("\n").partition("\n\n")
    sources: dict[str, _Source] = {}
    each: dict[str, list[_Source]] = {}
    for line in head.splitlines():
        alias, sign, rest = (part.strip() for part in line.partition(" = "))
        words = shlex.split(rest)
        if not sign or not words:
            raise Fault(f"expected 'alias = FILE.csv key=value ...', got {line!r}")
        if alias.endswith("*"):
            found = sorted(_matching(words[0]), key=lambda file: (_read(file)[0].get("date", ""), file))
            each[alias[:-1]] = [_Source((file,), tuple(words[1:])) for file in found]
        else:
            sources[alias] = _Source(tuple(words[0].split(",")), tuple(words[1:]))
    lines = [written for line in body.strip("\n").split("\n") for written in _lines(line, sources, each)]
    named = [*sources.values(), *(source for some in each.values() for source in some)]
    return list(dict.fromkeys(file for source in named for file in source.files)), "\n".join(lines) + "\n"


def _matching(pattern: str) -> list[str]:
    """The files of rows that match a pattern."""
    found = [path.relative_to(RESULTS).as_posix() for path in RESULTS.glob(pattern)]
    if not found:
        raise Fault(f"no file in benchmarks/results matches {pattern}")
    return found


def _lines(line: str, sources: dict[str, _Source], each: dict[str, list[_Source]]) -> list[str]:
    """A line of a template with its figures: once, or once for each file of a pattern that has its rows."""
    alias = next((name for name in each if f"{{{name}." in line), None)
    if alias is None:
        return [_CELL.sub(lambda match: _cell(match[1], sources), line)]
    written, absent = [], []
    for source in each[alias]:
        at = {**sources, alias: source}
        try:
            written.append(_CELL.sub(lambda match, at=at: _cell(match[1], at), line))  # type: ignore[misc]
        except _Absent as fault:
            absent.append(fault)
    if not written:
        raise absent[0]
    return written


def _templates(document: Path) -> dict[str, str]:
    path = TEMPLATES / document.relative_to(ROOT)
    if not path.is_file():
        return {}
    parts = re.split(r"^# ([\w-]+)\n", path.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rewrite(document: Path) -> tuple[str, str]:
    """The text of a document as it is, and as the rows give it.

    Raises
    ------
    Fault
        If a block has no template, a template has no block, or a cell is wrong.
    """
    text = document.read_text(encoding="utf-8")
    templates = _templates(document)
    used = set()

    def block(match: re.Match[str]) -> str:
        name = match[1]
        if name not in templates:
            raise Fault(f"{document.relative_to(ROOT)}: the block {name!r} has no template")
        used.add(name)
        try:
            files, body = render(templates[name])
        except Fault as fault:
            raise Fault(f"{document.relative_to(ROOT)}, {name}: {fault}") from None
        where = (TEMPLATES / document.relative_to(ROOT)).relative_to(TEMPLATES.parents[1])
        return f"<!-- rows {name}: {', '.join(files)}; edit {where} -->\n{body}<!-- end -->"

    new = _BLOCK.sub(block, text)
    if unused := templates.keys() - used:
        raise Fault(f"{document.relative_to(ROOT)}: no block for the templates {', '.join(sorted(unused))}")
    return text, new


#: A measurement, in all likelihood: a number with a unit, or one with three decimals (accuracies).
_MEASURED = re.compile(
    r"(?<![\w.])\d[\d.,]*(?: |\xa0)?(?:s|ms|min|MB/s|GFLOP/s|%|times|passes|microseconds)(?![\w/])"
    r"|\d\.\d+ [MG]iB|(?<![\w.])0\.\d{3}(?!\d)"  # a whole number of MiB may be a limit
)
_MARKER = re.compile(r"<!-- (rows [\w-]+|figures from|printed|no rows|no measurement)(?::([^>]*))? -->")


def unmarked(text: str) -> list[str]:
    """Paragraphs and tables with measurements that neither are in a block nor follow a marker.

    Markers stand on the line before: ``<!-- figures from: FILE.csv, ... -->``, ``<!-- printed: what -->`` (a
    paper's), ``<!-- no rows: why -->`` (measured, not kept), ``<!-- no measurement: why -->``. A file that is named
    and missing is a fault as well.
    """
    text = _BLOCK.sub("", re.sub(r"^```.*?^```$|^    [^\n]*$", "", text, flags=re.S | re.M))
    found = []
    for part in re.split(r"\n\s*\n", text):
        markers = _MARKER.findall(part)
        for kind, value in markers:
            if kind == "figures from":
                absent = [f.strip() for f in value.split(",") if not (RESULTS / f.strip()).is_file()]
                found += [f"no such file of rows: {name}" for name in absent]
        if not markers and _MEASURED.search(re.sub(r"`[^`]*`", "", part)):
            found.append(part.strip())
    return found

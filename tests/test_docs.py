"""The pages of the documentation: complete, linked, and true to the messages of the package."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import manyclass

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "papers").glob("*.md")])
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#([\w-]+))?\)")
#: Inner packages whose public names are another one's, or only for this package.
INNER = {"manyclass.estimators", "manyclass.solvers.bound", "manyclass.solvers.ds_mlr", "manyclass.solvers.out_of_core"}


def _read(path):
    return path.read_text(encoding="utf-8")


def _packages():
    """The package and its public subpackages."""
    yield manyclass
    for found in pkgutil.walk_packages(manyclass.__path__, "manyclass."):
        if found.ispkg and found.name not in INNER:
            module = importlib.import_module(found.name)
            if hasattr(module, "__all__"):
                yield module


def _documented():
    """Dotted names in docs/api.md."""
    module = ""
    for line in _read(ROOT / "docs" / "api.md").splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line):
            yield f"{module}.{line.strip()}"
        elif line.startswith("| `manyclass"):
            yield from re.findall(r"`(manyclass[\w.]+)`", line)


def test_the_reference_has_every_public_name_once():
    listed = list(_documented())
    assert len(listed) == len(set(listed))
    expected = {}
    for module in _packages():
        for name in module.__all__:
            shown = "manyclass" if name in manyclass.__all__ else module.__name__
            expected[f"{shown}.{name}"] = getattr(module, name)
    assert set(listed) == set(expected)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_a_page_has_a_title_a_next_step_and_no_broken_link(page):
    text = _read(page)
    assert text.startswith(("# ", "```{include}"))
    assert re.search(r"^Next: \[[^]]+\]\([\w./]+\)", text, re.MULTILINE)
    for file, anchor in _LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if "://" in file:
            continue
        target = (page.parent / file).resolve()
        assert target.exists(), file
        if anchor:
            titles = re.findall(r"^#+ (.*)$", _read(target), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]


def test_every_page_is_in_the_contents():
    listed = set()
    for page in PAGES:
        for block in re.findall(r"```\{toctree\}(.*?)```", _read(page), re.DOTALL):
            lines = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {re.sub(r".*<(.*)>", r"\1", line) for line in lines}
    names = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in PAGES}
    assert listed - {"auto_examples/index"} == names - {"index"}
    assert not names & {"search", "genindex"}  # Sphinx writes pages of these names


def test_messages_of_the_troubleshooting_page_exist():
    source = " ".join(_read(path) for path in (ROOT / "src").rglob("*.py"))
    # Messages are split over lines of the source, and have values in braces.
    source = re.sub(r"\s+", " ", re.sub(r"\"\s*f?\"", "", source))
    ours = re.findall(r"^\| (`.*?`) \|", _read(ROOT / "docs" / "troubleshooting.md"), re.MULTILINE)
    messages = [part for cell in ours for part in re.findall(r"`([^`]+)`", cell)]
    assert len(messages) > 12
    of_scikit_learn = {"The number of unique classes is greater than 50%"}
    assert [message for message in messages if message not in source] == sorted(of_scikit_learn)


def test_the_gallery_has_every_example_in_an_order():
    tree = ast.parse(_read(ROOT / "docs" / "conf.py"))
    [order] = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "_EXAMPLES"]
    listed = ast.literal_eval(order)
    assert len(listed) == len(set(listed))
    assert set(listed) == {path.stem for path in (ROOT / "examples").glob("*.py")}

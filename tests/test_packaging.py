"""What the package says of itself, held together."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import manyclass
from conftest import FUNCTIONS_ONE_IN, ONE_IN, REST_ONE_IN

ROOT = Path(__file__).parents[1]
#: README and the pages of the documentation with Python in them.
PAGES = [
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "```python" in page.read_text(encoding="utf-8")
]


def _floors() -> dict[str, str]:
    """name -> oldest version admitted by pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return dict(re.findall(r'"([a-z0-9-]+)>=([0-9.]+)', text))


def test_the_oldest_session_tests_the_oldest_versions():
    lines = (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8").splitlines()
    oldest = dict(line.split("==") for line in lines if not line.startswith("#"))
    floors = _floors()
    ours = (
        "hatchling",
        "ruff",
        "mypy",
        "import-linter",
        "numpydoc",
        "nox",
        "pre-commit",
        "array-api-strict",
        *("sphinx", "pydata-sphinx-theme", "sphinx-gallery", "myst-parser"),
    )  # developers' own
    floors = {name: floor for name, floor in floors.items() if name not in ours}
    assert oldest.keys() == floors.keys()
    for name, version in oldest.items():
        assert [*version.split("."), "0"][:3] == [*floors[name].split("."), "0", "0"][:3], name


def test_the_conda_recipe_has_the_requirements_of_the_package():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    ours = re.findall(r'"([a-z-]+)>=([0-9.,<]+)"', re.search(r"^dependencies = \[(.*?)^\]", text, re.M | re.S)[1])
    recipe = (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")
    theirs = re.findall(r"- ([a-z-]+) >=([0-9.,<]+)", recipe.partition("  run:")[2])
    assert sorted(theirs) == sorted([*ours, ("python", re.search(r'requires-python = ">=([0-9.]+)"', text)[1])])


@pytest.fixture
def readme_commands(monkeypatch):
    """What CI runs of a README: the function that finds it."""
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    return importlib.import_module("readme_commands").commands


def test_ci_finds_two_commands_in_the_readme_that_install_and_run_something(readme_commands):
    found = readme_commands((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(found) == 2
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line in found:
        install, _, run = line.partition(" && ")
        *words, what = shlex.split(install)
        assert words == ["python", "-m", "pip", "install"]
        (extra,) = re.fullmatch(r"\.\[([a-z]+)\]", what).groups()
        assert re.search(rf"^{extra} = \[", pyproject, re.MULTILINE)
        assert shlex.split(run)


@pytest.mark.parametrize(
    "block", ["pip install x\n", "pip install x\npip install y\npip install z\n", "pip install x\npytest\n", "pytest\n"]
)
def test_ci_refuses_a_readme_without_two_installations(readme_commands, block):
    with pytest.raises(ValueError, match=f"found {block.count('pip install') and len(block.splitlines())} lines"):
        readme_commands(f"# Name\n\n```python\nimport x\n```\n\n```\n{block}```\n\nmore\n")


def test_ci_takes_the_first_block_that_installs(readme_commands):
    text = "```\nls\n```\n```sh\npip install x && y\n\npip install z && w\n```\n```\npip install later\n```\n"
    assert readme_commands(text) == ["pip install x && y", "pip install z && w"]


def _collected(*options: str) -> tuple[set[str], str]:
    """The cases that pytest would run, and all that it says."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=120)
    return {line for line in done.stdout.splitlines() if line.startswith("tests/")}, done.stdout


def test_a_run_says_how_many_cases_it_left_out():
    files = ("tests/test_losses.py", "tests/test_vmath.py")
    brief, _ = _collected("--level", "brief", *files)
    sample, said = _collected("--level", "quick", *files)
    rest, _ = _collected("--level", "rest", *files)
    every, said_of_all = _collected("--full", *files)
    assert brief < sample < every
    assert rest < every - sample
    names = {case.partition("[")[0] for case in every}
    assert {case.partition("[")[0] for case in sample | rest} == names
    functions = len(names)
    firsts = {level: functions / one_in for level, one_in in FUNCTIONS_ONE_IN.items()}
    assert len(brief) == len({case.partition("[")[0] for case in brief})
    assert 0.5 < len(brief) / firsts["brief"] < 2.0
    assert 0.5 < len(sample) / (firsts["quick"] + (len(every) - firsts["quick"]) / ONE_IN) < 2.0
    assert 0.5 < len(rest) / (functions - firsts["quick"] + (len(every) - functions) / REST_ONE_IN) < 2.0
    assert f"{len(every) - len(sample)} further cases were left out: run `nox -s full`" in said
    assert "left out" not in said_of_all


@pytest.mark.parametrize(
    "page",
    PAGES,
)
def test_pages_run(page, tmp_path):
    text = (ROOT / page).read_text(encoding="utf-8")
    code = "".join(re.findall(r"```python\n(.*?)```", text, re.S))
    assert code
    for package in set(re.findall(r"^import (torch)$", code, re.M)):  # CI's session "arrays" has it
        pytest.importorskip(package)
    # In a folder of its own: the examples save a model.
    subprocess.run([sys.executable, "-c", code], check=True, env=_environment(), cwd=tmp_path, timeout=300)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example, tmp_path):
    subprocess.run([sys.executable, str(example)], check=True, env=_environment(), cwd=tmp_path, timeout=300)


def test_importing_costs_next_to_nothing():
    code = "import sys, manyclass; print(any(m in sys.modules for m in ('numba', 'sklearn', 'scipy', 'numpy')))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False"


def test_those_who_load_a_model_do_not_import_scikit_learn(tmp_path):
    """It takes two seconds."""
    rows, labels = np.eye(3), np.array(["a", "b", "c"])
    manyclass.LinearClassifier().fit(rows, labels).save(tmp_path / "model")
    code = (
        "import sys, numpy, manyclass\n"
        f"found = manyclass.load({str(tmp_path / 'model')!r}).predict(numpy.eye(3))\n"
        "print(found.tolist() == ['a', 'b', 'c'], 'sklearn' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["True", "False"]


def test_public_names_are_there():
    assert set(manyclass.__all__) <= set(dir(manyclass))
    for name in manyclass.__all__:
        assert getattr(manyclass, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = manyclass.nothing


def _environment() -> dict[str, str]:
    return {**os.environ, "MPLBACKEND": "Agg"}

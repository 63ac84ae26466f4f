"""What the package says of itself, held together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import manyclass

ROOT = Path(__file__).parents[1]


def _floors() -> dict[str, str]:
    """name -> oldest version admitted by pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return dict(re.findall(r'"([a-z0-9-]+)>=([0-9.]+)', text))


def test_the_oldest_session_tests_the_oldest_versions():
    lines = (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8").splitlines()
    oldest = dict(line.split("==") for line in lines if not line.startswith("#"))
    floors = _floors()
    ours = ("hatchling", "ruff", "mypy", "nox", "pre-commit", "array-api-strict")  # developers' own
    floors = {name: floor for name, floor in floors.items() if name not in ours}
    assert oldest.keys() == floors.keys()
    for name, version in oldest.items():
        assert [*version.split("."), "0"][:3] == [*floors[name].split("."), "0", "0"][:3], name


def test_readme_shows_the_two_commands_first():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = readme.index("python -m pip install '.[all]' && manyclass demo")
    second = readme.index("python -m pip install '.[test]' && pytest")
    assert first < second < readme.index("```python")


@pytest.mark.parametrize(
    "page", ["README.md", "docs/distributed.md", "docs/paths.md", "docs/search.md", "docs/store.md"]
)
def test_pages_run(page, tmp_path):
    text = (ROOT / page).read_text(encoding="utf-8")
    code = "".join(re.findall(r"```python\n(.*?)```", text, re.S))
    assert code
    # In a folder of its own: the examples save a model.
    subprocess.run([sys.executable, "-c", code], check=True, env=_environment(), cwd=tmp_path, timeout=300)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example, tmp_path):
    subprocess.run([sys.executable, str(example)], check=True, env=_environment(), cwd=tmp_path, timeout=300)


def test_importing_costs_next_to_nothing():
    code = "import sys, manyclass; print(any(m in sys.modules for m in ('numba', 'sklearn', 'scipy', 'numpy')))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False"


def test_public_names_are_there():
    assert set(manyclass.__all__) <= set(dir(manyclass))
    for name in manyclass.__all__:
        assert getattr(manyclass, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = manyclass.nothing


def _environment() -> dict[str, str]:
    return {**os.environ, "MPLBACKEND": "Agg"}

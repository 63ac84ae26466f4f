"""Every example in a docstring runs; public docstrings say what numpydoc asks for."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import manyclass
from manyclass.models.base import Model
from manyclass.objective.component import Component

MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(manyclass.__path__, "manyclass.")
    if not found.name.endswith("__main__")
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
#: What numpydoc checks: https://numpydoc.readthedocs.io/en/latest/validation.html
CHECKS = {
    *("GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "GL09", "GL10"),
    *("SS01", "SS02", "SS03", "SS04", "SS06"),
    *("PR01", "PR02", "PR03", "PR04", "PR05", "PR06", "PR07", "PR10"),
    *("RT01", "RT03", "YD01"),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_examples_run(name):
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=FLAGS, verbose=False)
    assert not found.failed


def _public():
    """Dotted names of the public functions, classes and methods."""
    for name in manyclass.__all__:
        item = getattr(manyclass, name)
        if not callable(item):
            continue
        if not (inspect.isclass(item) and issubclass(item, Model) and item is not manyclass.LinearModel):
            yield f"{item.__module__}.{item.__qualname__}"
        if not inspect.isclass(item) or issubclass(item, Component):
            continue  # the methods of losses and solvers are for the fitting loop, not for users
        if issubclass(item, Model) and item is not manyclass.LinearModel:
            continue  # the methods of models are described where LinearModel has them
        for attribute in dir(item):
            if attribute.startswith("_") or attribute in ("parts", "from_parts", "to_state", "from_state"):
                continue
            member = inspect.getattr_static(item, attribute)
            function = getattr(member, "__func__", getattr(member, "fn", member))
            owner = getattr(function, "__module__", "") or ""
            if callable(function) and owner.startswith("manyclass"):
                yield f"{item.__module__}.{item.__qualname__}.{attribute}"


@pytest.mark.parametrize("name", sorted(set(_public())))
def test_public_docstrings_are_complete(name):
    validate = pytest.importorskip("numpydoc.validate", reason="numpydoc is not installed").validate
    errors = [f"{code}: {text}" for code, text in validate(name)["errors"] if code in CHECKS]
    assert not errors

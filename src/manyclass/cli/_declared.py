"""What losses, solvers, blocks of features and estimators declare, read from their sources.

Help needs names, summaries and defaults alone, and importing the classes, with Numba and scikit-learn, takes seconds.
The classes stay the only place where these are written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Declaration", "blocks", "losses", "solvers"]

_PACKAGE = Path(__file__).parents[1]


class Declaration(NamedTuple):
    """What a class or a function says of itself.

    Attributes
    ----------
    module : str
        That has it, or imports it.
    kind : str
        Its name in Python.

    Examples
    --------
    >>> lbfgs = Declaration("manyclass.solvers", "LBFGS")
    >>> lbfgs.summary, lbfgs.parameters
    ('limited-memory quasi-Newton', {'history_size': 10})
    """

    module: str
    kind: str

    @property
    def summary(self) -> str:
        """One line for tables and ``--help``."""
        return self.text("summary")

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters with a default, and that default, but those that say where a solver runs and writes."""
        init = next(_members(self.module, self.kind, "__init__"), _definition(self.module, self.kind)[1])
        if not isinstance(init, ast.FunctionDef):
            return {}
        positional, named = init.args.args, init.args.kwonlyargs
        with_default = positional[len(positional) - len(init.args.defaults) :]
        pairs = [*zip(with_default, init.args.defaults), *zip(named, init.args.kw_defaults)]
        local = next((_value(node) for node in _members(self.module, self.kind, "local")), ())
        return {name.arg: _value(value) for name, value in pairs if value is not None and name.arg not in local}

    def text(self, name: str) -> str:
        """A text that the class or one of its bases assigns to a name; empty if none does."""
        return next((_value(node) for node in _members(self.module, self.kind, name)), "")


def losses() -> dict[str, Declaration]:
    """Name -> loss, as `manyclass.objective.losses` lists them."""
    home = "manyclass.objective.losses"
    return {**_listed(home, "CLASSIFICATION"), **_listed(home, "REGRESSION")}


def solvers() -> dict[str, Declaration]:
    """Name -> solver, as `manyclass.solvers` lists them."""
    return _listed("manyclass.solvers", "SOLVERS")


def blocks() -> dict[str, Declaration]:
    """Name -> block of features, as `manyclass.features` lists them."""
    return _listed("manyclass.features", "BLOCKS")


def _listed(module: str, registry: str) -> dict[str, Declaration]:
    """Name -> class of a registry: a dict with its names, or a comprehension over classes that have a ``name``."""
    found: Any = _module(module)[registry]
    if isinstance(found, ast.Dict):
        named: Any = zip(found.keys, found.values)
        return {_value(key): Declaration(module, kind.id) for key, kind in named}
    listed = [Declaration(module, kind.id) for kind in found.generators[0].iter.elts]
    return {declared.text("name"): declared for declared in listed}


def _members(module: str, kind: str, name: str) -> Iterator[ast.AST]:
    """What a class and its bases assign to a name, or define by it, nearest first."""
    home, node = _definition(module, kind)
    if not isinstance(node, ast.ClassDef):
        return
    own = _defined(node.body).get(name)
    if isinstance(own, ast.AST):
        yield own
    for base in node.bases:
        if isinstance(base, ast.Name):
            yield from _members(home, base.id, name)


def _definition(module: str, name: str) -> tuple[str, ast.AST | None]:
    """The module that a name comes from, and what it stands for there; None if that is outside of the package."""
    found = _module(module).get(name)
    return _definition(*found) if isinstance(found, tuple) else (module, found)


@cache
def _module(module: str) -> dict[str, Any]:
    package, *parts = module.split(".")
    if package != _PACKAGE.name:
        return {}
    path = _PACKAGE.joinpath(*parts)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return _defined(ast.parse(path.read_text(encoding="utf-8")).body)


def _defined(body: list[ast.stmt]) -> dict[str, Any]:
    """Name -> definition, assigned value, or the (module, name) that it is imported from."""
    found: dict[str, Any] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({alias.asname or alias.name: (node.module, alias.name) for alias in node.names})
        elif isinstance(node, ast.If):  # of a package that imports its modules on first use
            found.update(_defined(node.body))
    return found


def _value(node: ast.AST) -> Any:
    """The value of a literal, or of arithmetic with literals (``1 << 27``)."""
    return eval(compile(ast.Expression(node), "<default>", "eval"), {"__builtins__": {}})  # type: ignore[arg-type]

"""A hierarchy of classes in a file, and the accuracy at each of its levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from manyclass.cli._common import CommandError

if TYPE_CHECKING:
    import numpy as np

    from manyclass.models.base import Model

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["Hierarchy", "read_hierarchy"]


class Hierarchy(NamedTuple):
    """Parents of nodes, see `manyclass.metrics.level_accuracy`, and the number of each name if nodes have names."""

    path: str
    parents: Array
    numbers: dict[str, int] | None

    def nodes(self, labels: Array, whose: str) -> Array:
        """The nodes of labels.

        Raises
        ------
        CommandError
            If a label is no node; the message says ``whose`` it is.
        """
        import numpy as np

        if self.numbers is None:
            if labels.dtype.kind not in "iu":
                raise CommandError(
                    f"--hierarchy {self.path}: a line per node number, and the labels {whose} are names such as "
                    f"{labels[:1].tolist()[0]!r}: give lines NODE, tab, PARENT"
                )
            wrong = labels[(labels < 0) | (labels >= len(self.parents))]
            found = labels
        else:
            names, place = np.unique(labels.astype(np.str_), return_inverse=True)
            at = np.array([self.numbers.get(name, -1) for name in names.tolist()], np.int64)
            found = at[place.reshape(-1)]
            wrong = labels[found < 0]
        if len(wrong):
            raise CommandError(
                f"--hierarchy {self.path}: the label {wrong[:1].tolist()[0]!r} {whose} is none of its "
                f"{len(self.parents)} nodes: add its line"
            )
        return found

    def accuracies(self, y: Array, predicted: Array) -> list[float]:
        """The accuracy at each level, the roots first."""
        from manyclass.metrics import level_accuracy

        nodes = self.nodes(y, "of the data"), self.nodes(predicted, "of the model")
        levels: list[float] = level_accuracy(*nodes, self.parents).tolist()
        return levels


def read_hierarchy(path: str, model: Model) -> Hierarchy:
    """The hierarchy in a file, whose nodes include the classes of the model.

    Either line i, from 0, has the number of the parent of node i, -1 for a root; or each line has the name of a node, a
    tab, and the name of its parent, empty for a root. Parents without a line of their own are roots.

    Raises
    ------
    CommandError
        If the file cannot be read, is no hierarchy, or lacks a class.
    """
    import numpy as np

    from manyclass.metrics import level_accuracy

    classes = np.asarray(model.classes)
    if model.task not in ("binary", "multiclass"):
        raise CommandError(f"--hierarchy needs a model of one label a row, got one of task {model.task!r}")
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.rstrip("\r\n") for line in file]
        named = any("\t" in line for line in lines)
        found = Hierarchy(path, *(_named(lines) if named else (np.array([int(x) for x in lines], np.int64), None)))
        level_accuracy([0], [0], found.parents)  # checks the tree
    except (OSError, ValueError, OverflowError) as error:
        raise CommandError(f"--hierarchy {path}: {error}") from error
    found.nodes(classes, "of the model")
    return found


def _named(lines: list[str]) -> tuple[Array, dict[str, int]]:
    """Parents by number, and the number of each name, in the order of the lines, then the parents without a line."""
    import numpy as np

    above: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) != 2 or not parts[0]:
            raise ValueError(f"line {number} is {line!r}; expected the name of a node, a tab and that of its parent")
        if above.setdefault(parts[0], parts[1]) != parts[1]:
            raise ValueError(f"line {number}: {parts[0]!r} has a second parent {parts[1]!r}, after {above[parts[0]]!r}")
    names = list(dict.fromkeys([*above, *(parent for parent in above.values() if parent)]))
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers.get(above.get(name, ""), -1) for name in names], np.int64), numbers

"""``manyclass fit --method blocks``: from a row store to a model in blocks of classes, neither of them in memory."""

from __future__ import annotations

import argparse
import inspect
from typing import TYPE_CHECKING, Any

from manyclass.cli import methods
from manyclass.cli._common import CommandError, Screen, check_output, count, seconds
from manyclass.cli._folders import describe_store, is_store

if TYPE_CHECKING:
    from manyclass.distributed import Communicator

__all__ = ["fit_on_store"]

#: Options of the command line, and their names in `fit_blocks`.
_SHARED = {
    "alpha": "alpha",
    "tol": "tol",
    "max_iter": "max_iter",
    "fit_intercept": "fit_intercept",
    "dtype": "dtype",
    "block_classes": "block_classes",
}


def fit_on_store(args: argparse.Namespace, screen: Screen, comm: Communicator | None) -> int:
    """Train and write; on several ranks, each of which has its part of the rows."""
    from manyclass.io.store import RowStore
    from manyclass.objective.history import History, Record
    from manyclass.solvers.out_of_core import fit_blocks

    if not is_store(args.data):
        raise CommandError(
            f"--method blocks is for row stores: write {args.data} as one with  manyclass convert {args.data} -o "
            "NAME.store"
        )
    check_output("--history", args.history)
    known = set(inspect.signature(fit_blocks).parameters) - {"store", "path", "comm"}
    given: dict[str, Any] = {
        name: getattr(args, option)
        for option, name in _SHARED.items()
        if getattr(args, option) != args.parser_default(option)
    }
    given.update(methods.settings(args.set))
    for name in given:
        if name not in known:
            raise CommandError(f"--method blocks has no parameter {name!r}; it has {', '.join(sorted(known))}")
    given = {"random_state": args.seed, "verbose": 0 if screen.quiet else 1, **given}
    store = RowStore(args.data)
    screen.say(f"opened {args.data}: {describe_store(store)}")
    screen.say("fitting blocks of classes; Ctrl-C keeps what is reached")
    model = fit_blocks(store, args.output, comm=comm, **given)
    record = model.record
    if comm is not None and comm.rank:
        return 0
    if args.history:
        History([Record(**row) for row in record["history"]["records"]]).to_csv(args.history)
    facts = {
        "method": "blocks",
        "outcome": str(record["outcome"]),
        "epochs": count(record["n_iter"]),
        "blocks of classes": count(len(model.blocks)),
    }
    if "objective" in record:
        facts["objective"] = f"{record['objective']:.8g}"
        facts["certified relative gap"] = f"{record['relative_gap']:.2e}"
        facts["training"] = f"{seconds(record['history']['records'][-1]['seconds'])} s"
    if not screen.quiet:
        screen.facts(f"wrote {args.output}", facts)
    return 0

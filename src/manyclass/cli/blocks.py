"""``manyclass fit --estimator blocks``: from a row store to a model in blocks of classes, neither of them in memory."""

from __future__ import annotations

import argparse
import inspect
from typing import TYPE_CHECKING

from manyclass.cli._common import CommandError, Screen, check_output, count, seconds
from manyclass.cli._estimators import check_known, given
from manyclass.cli._folders import describe_store, is_store

if TYPE_CHECKING:
    from manyclass.distributed import Communicator

__all__ = ["fit_on_store"]

#: Options that have no meaning here.
_REFUSED = ("plot", "sparsify", "valid", "labels", "n_features", "checkpoint", "resume")


def fit_on_store(args: argparse.Namespace, screen: Screen, comm: Communicator | None) -> int:
    """Train and write; on several ranks, each of which has its part of the rows."""
    from manyclass.io.store import RowStore
    from manyclass.objective.history import History, Record
    from manyclass.solvers.out_of_core import fit_blocks

    if not is_store(args.data):
        raise CommandError(
            f"--estimator blocks is for row stores: write {args.data} as one with  manyclass convert {args.data} -o "
            "NAME.store"
        )
    check_output("--history", args.history)
    for name in _REFUSED:
        if getattr(args, name) not in (None, False):
            raise CommandError(f"--{name.replace('_', '-')} is not for --estimator blocks: leave it out")
    parameters = given(args)
    known = [name for name in inspect.signature(fit_blocks).parameters if name not in ("store", "path", "comm")]
    check_known("--estimator blocks, ", known, parameters)
    parameters = {"random_state": args.seed, "verbose": 0 if screen.quiet else 1, **parameters}
    store = RowStore(args.data)
    screen.say(f"opened {args.data}: {describe_store(store)}")
    screen.say("fitting blocks of classes; Ctrl-C keeps what is reached")
    model = fit_blocks(store, args.output, comm=comm, **parameters)
    record = model.record
    if comm is not None and comm.rank:
        return 0
    if args.history:
        History([Record(**row) for row in record["history"]["records"]]).to_csv(args.history)
    facts = {
        "estimator": "blocks",
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

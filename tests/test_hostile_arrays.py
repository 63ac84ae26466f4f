"""Damaged arrays at every entry to compiled code: never a signal, never a result, always an error that names them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import hostile_arrays
import manyclass


@pytest.mark.parametrize("group", hostile_arrays.GROUPS)
def test_every_entry_refuses_damaged_arrays_and_takes_odd_ones(group):
    """In a process of their own: a signal belongs to the case that was named last."""
    first, fallen = 0, []
    while first >= 0:
        script = Path(hostile_arrays.__file__)
        found = subprocess.run([sys.executable, script, group, str(first)], capture_output=True, text=True)
        lines = [json.loads(line) for line in found.stdout.splitlines()]
        assert lines, found.stderr
        fallen += [(line[1], line[2]) for line in lines if len(line) == 3 and line[2]]
        begun, first = lines[-1], -1
        if found.returncode:
            assert len(begun) == 2, found.stderr
            fallen.append((begun[1], f"exit status {found.returncode}: {found.stderr[-500:]}"))
            first = begun[0] + 1
    assert not fallen, "\n".join(f"{name}: {what}" for name, what in fallen)
    assert begun[0] >= 70, "too few cases were run"


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
@pytest.mark.filterwarnings("ignore")
def test_values_changed_by_another_thread_are_never_certified(value):
    """Rows are not copied: a fit whose rows are no longer finite, or huge, has no certificate."""
    rng = np.random.default_rng(0)
    X, y = sp.random(400, 30, 0.3, "csr", random_state=0), rng.integers(0, 4, 400)
    change = threading.Thread(target=X.data.__setitem__, args=(slice(None, None, 7), value))

    def later(progress):
        if progress.iteration > 2 and change.ident is None:
            change.start()
            change.join()

    estimator = manyclass.LinearClassifier(tol=0.0, max_iter=50, random_state=0)
    estimator.fit(X, y, callback=later)
    assert change.ident is not None
    assert np.isfinite(estimator.coef_).all()
    assert not estimator.duality_gap_ < 0.5

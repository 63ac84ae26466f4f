"""SIGKILL at random moments: the old content or the new one, never neither; fits go on to the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from killing import OPERATIONS

#: Moments of each operation; the session `nox -s kills` takes 50.
MOMENTS = int(os.environ.get("MANYCLASS_KILLS", "2"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_leaves_the_old_content_or_the_new(name):
    """In a process of its own, because one with threads must not be forked."""
    program = [sys.executable, str(Path(__file__).with_name("killing.py")), name, str(MOMENTS)]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["killed"] == MOMENTS
    assert told["left after the next write"] == 0, told
    assert told.get("same bits", True), told
    if MOMENTS > 10:
        assert told["temporaries"] > 0, "it was never killed while it wrote"
        assert told.get("resumed from", 1) > 0

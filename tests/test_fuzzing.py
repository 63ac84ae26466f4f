"""Files that once fell are read again, and new mutations of every format; `nox -s fuzz` runs many more."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fuzzing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")


def test_what_once_fell_is_refused():
    """In a process of their own: some of these files ended it by a signal."""
    found = subprocess.run([sys.executable, fuzzing.__file__, "--replay"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert len(found.stdout.splitlines()) == len(list(fuzzing.CORPUS.iterdir())) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzzing.TARGETS)
def test_mutations_are_refused_or_read(name, tmp_path):
    # A number of mutations, so that a fast machine tries no others.
    count, ended = fuzzing.drive(name, seed=0, seconds=60.0, found=tmp_path, until=300)
    assert not ended
    assert not list(tmp_path.iterdir()), [file.name for file in tmp_path.iterdir()]
    assert count > 20

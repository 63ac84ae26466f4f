"""Data and models that come through pipes: ``-`` is standard input."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import threading

import numpy as np
import pytest

from manyclass import LinearModel
from manyclass.io import read
from test_cli_support import fitted, left, make, refused, run, table, texts


@pytest.fixture
def piped(monkeypatch, tmp_path):
    """Put a file, or bytes, on standard input; what is made of them is gone in the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spool"))
    (tmp_path / "spool").mkdir()

    def put(content):
        content = content if isinstance(content, bytes) else content.read_bytes()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    yield put
    assert left(tmp_path / "spool") == set()


@pytest.mark.parametrize("kind", ["svm", "svm.gz", "xmc", "npz"])
def test_predictions_of_what_is_piped(capsys, piped, tmp_path, kind):
    path = make(kind, tmp_path)
    fitted(capsys, path, "-o", tmp_path / "m")
    expected = run(capsys, "predict", tmp_path / "m", path)
    piped(path)
    ran = run(capsys, "predict", tmp_path / "m", "-", "-o", "-")
    assert ran.lines == expected.lines
    assert "read standard input in " in ran.err
    assert "spool" not in ran.err
    piped(tmp_path / "m")
    assert run(capsys, "predict", "-", path).lines == expected.lines


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_piped_texts_are_read_as_those_of_the_fit(capsys, piped, tmp_path, kind):
    path = make(kind, tmp_path)
    fitted(capsys, path, "-o", tmp_path / "m")
    piped(path)
    assert run(capsys, "predict", tmp_path / "m", "-").lines == texts()[1]
    piped(b"text\nmy card is lost\n")
    assert run(capsys, "predict", tmp_path / "m", "-").lines == ["card"]
    piped(b"my card is lost\nthe interest\n")
    assert run(capsys, "predict", tmp_path / "m", "-", "--no-header", "--text-column", "0").lines == ["card", "loan"]


def test_score_info_and_fit_of_what_is_piped(capsys, piped, tmp_path):
    path = make("svm", tmp_path)
    piped(path)
    model, _ = fitted(capsys, "-", "-o", tmp_path / "m")
    assert model.record["data"]["source"] == "standard input"
    data = read(path)
    again, _ = fitted(capsys, path, "-o", tmp_path / "n")
    np.testing.assert_array_equal(model.weights, again.weights)
    piped(path)
    assert run(capsys, "score", tmp_path / "m", "-").lines[0] == f"{tmp_path / 'm'} on standard input"
    piped(path)
    found = json.loads(run(capsys, "info", "-", "--json").out)
    assert (found["file"], found["rows"], found["file_bytes"]) == (
        "standard input",
        data.n_samples,
        path.stat().st_size,
    )
    piped(tmp_path / "m")
    assert run(capsys, "info", "-").lines[0] == "standard input"


def test_conversions_through_pipes(capsys, tmp_path):
    path = make("npz", tmp_path)
    command = [sys.executable, "-m", "manyclass", "convert"]
    done = subprocess.run([*command, path, "-o", "-", "--to", "svmlight"], capture_output=True, timeout=120, check=True)
    (tmp_path / "out.svm").write_bytes(done.stdout)
    np.testing.assert_array_equal(read(tmp_path / "out.svm").X.toarray(), read(path).X.toarray())
    again = [*command, "-", "-o", tmp_path / "again.npz"]
    subprocess.run(again, input=done.stdout, capture_output=True, timeout=120, check=True)
    np.testing.assert_array_equal(read(tmp_path / "again.npz").X.toarray(), read(path).X.toarray())
    refused(run(capsys, "convert", path, "-o", "-"), "does not tell the format")
    refused(run(capsys, "convert", path, "-o", "-", "--to", "npz"), "-o - writes text", "--to svmlight or xmc")


def test_named_pipes(capsys, piped, tmp_path):
    path, pipe = make("svm", tmp_path), tmp_path / "pipe"
    fitted(capsys, path, "-o", tmp_path / "m")
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    ran = run(capsys, "predict", tmp_path / "m", pipe)
    writer.join()
    assert len(ran.lines) == 300
    assert f"read {pipe} in " in ran.err
    refused(run(capsys, "info", pipe), f"{pipe} is a pipe", f"manyclass info - < {pipe}")


def test_what_is_wrong_is_said_of_standard_input(capsys, monkeypatch, piped, tmp_path):
    fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m")
    for content, needles in (
        (b"", ["standard input: the file is empty"]),
        (b"1 1:2\n0 1:x\n", ["standard input, line 2: the value in '1:x'"]),
        (b"neither\n", ["standard input: its format cannot be detected", "--format"]),
        (b"1 99:1\n", ["standard input, line 1", "99:1", "--extra-features ignore"]),
    ):
        piped(content)
        ran = run(capsys, "predict", tmp_path / "m", "-")
        refused(ran, *needles)
        assert str(tmp_path / "spool") not in ran.err
    refused(run(capsys, "score", "-", "-"), "can be read once")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    refused(run(capsys, "predict", tmp_path / "m", "-"), "nothing is piped there")
    for name, value in (("PMI_RANK", "0"), ("PMI_SIZE", "2")):
        monkeypatch.setenv(name, value)
    refused(run(capsys, "fit", "-", "-o", tmp_path / "n", "--solver", "ds_mlr"), "a pipe reaches one of them")


def test_labels_and_validation_from_a_pipe(capsys, piped, tmp_path):
    rows, labels = texts()
    path = table(tmp_path / "data.csv", {"text": rows, "queue": labels})
    piped(path)
    _, ran = fitted(capsys, path, "-o", tmp_path / "m", "--valid", "-")
    assert "accuracy on standard input  1.0000" in ran.out
    assert isinstance(LinearModel.load(tmp_path / "m"), LinearModel)

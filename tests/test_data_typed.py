"""JSON lines, Parquet and Arrow: read as tables of texts, from a shell too; predictions in these forms."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from manyclass import LinearModel, load
from manyclass.cli import predict
from manyclass.io import DataFormatError, detect_format, read
from test_cli_support import fitted, make, refused, run

TEXTS = ["red fish", "blue fish", "red bird", "a bird, blue"] * 5
CODES = [3, 4, 3, 7] * 5


def write_jsonl(path, columns):
    rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_parquet(path, columns):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table(columns), path, row_group_size=7)


def write_arrow(path, columns, stream=False):
    pa = pytest.importorskip("pyarrow")
    table = pa.table(columns)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


WRITERS = {"jsonl": write_jsonl, "parquet": write_parquet, "arrow": write_arrow}


@pytest.mark.parametrize("format", WRITERS)
def test_typed_tables_are_read_as_those_of_csv(format, tmp_path):
    columns = {"id": list(range(20)), "title": TEXTS, "code": CODES}
    path, table = tmp_path / f"rows.{format}", tmp_path / "rows.csv"
    WRITERS[format](path, columns)
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values())])
    assert detect_format(path) == format
    expected = read(table, text_column="title", label_column="code")
    data = read(path, text_column="title", label_column="code")
    assert (data.X != expected.X).nnz == 0
    assert data.y.tolist() == expected.y.tolist() == CODES
    assert data.layout.columns == expected.layout.columns
    # A table that was read before says how, in whatever format the next one is.
    again = read(path, layout=expected.layout, vectorizer=expected.vectorizer)
    assert (again.X != expected.X).nnz == 0
    other = tmp_path / "rows.unknown"
    other.write_bytes(path.read_bytes())
    assert detect_format(other) == format, "by its content"


@pytest.mark.parametrize("format", WRITERS)
def test_lists_of_labels_and_missing_values(format, tmp_path):
    path = tmp_path / f"rows.{format}"
    WRITERS[format](path, {"text": ["red fish", None, "blue"], "tags": [["a", "b"], ["b"], []]})
    data = read(path, task="multilabel", label_separator=";")
    assert data.y.toarray().tolist() == [[1, 1], [0, 1], [0, 0]]
    assert data.label_names.tolist() == ["a", "b"]
    assert np.diff(data.X.indptr).tolist() == [2, 0, 1]
    with pytest.raises(DataFormatError, match="'tags' has a list; expected one value: pass label_separator="):
        read(path)


def test_a_stream_of_arrow(tmp_path):
    path = tmp_path / "rows.arrow"
    write_arrow(path, {"text": TEXTS, "label": CODES}, stream=True)
    assert read(path).y.tolist() == CODES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "a", "label": 1}\nb', "line 2.* is no JSON"),
        ("[1, 2]", "has a JSON list; expected an object on each line"),
    ],
)
def test_damaged_lines_are_told(tmp_path, text, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(DataFormatError, match=message):
        read(path)


def test_damaged_parquet_and_options_of_csv(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataFormatError, match="cannot be read as parquet"):
        read(path)
    with pytest.raises(ValueError, match=r"delimiter is ';', but .* has the format 'parquet': leave it out"):
        read(path, delimiter=";")


def test_empty_batches_have_no_rows(tmp_path):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"text": TEXTS, "label": CODES})
    with pa.ipc.new_file(tmp_path / "rows.arrow", table.schema) as writer:
        for part in (table.slice(0, 0), table, table.slice(0, 0)):
            for batch in part.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]:
                writer.write_batch(batch)
    assert read(tmp_path / "rows.arrow").y.tolist() == CODES


def test_without_pyarrow_the_command_is_told(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"needs the package 'pyarrow': install it with .*'manyclass\[arrow\]'"):
        read(path)


@pytest.mark.parametrize("format", WRITERS)
def test_from_a_shell_fit_convert_predict(capsys, tmp_path, format):
    path = tmp_path / f"train.{format}"
    WRITERS[format](path, {"text": TEXTS, "label": CODES})
    model, _ = fitted(capsys, path, "-o", tmp_path / "m")
    assert model.vectorizer is not None
    found = run(capsys, "predict", tmp_path / "m", path).out.split()
    assert found == [str(label) for label in load(tmp_path / "m").predict(TEXTS).tolist()]
    run(capsys, "convert", path, "-o", tmp_path / "rows.npz")
    assert (sp.load_npz(tmp_path / "rows.npz") != read(path).X).nnz == 0


@pytest.mark.parametrize("format", WRITERS)
def test_what_is_piped_tells_its_format(capsys, tmp_path, monkeypatch, format):
    """A model of one kind of table reads another from a pipe, which has no name."""
    path, table = tmp_path / f"rows.{format}", tmp_path / "train.csv"
    table.write_text("text,label\n" + "".join(f'"{text}",{code}\n' for text, code in zip(TEXTS, CODES)))
    WRITERS[format](path, {"text": TEXTS, "label": CODES})
    fitted(capsys, table, "-o", tmp_path / "of_csv")
    fitted(capsys, path, "-o", tmp_path / "of_typed")
    expected = run(capsys, "predict", tmp_path / "of_csv", table).out
    for name, given in (("of_csv", path), ("of_typed", path), ("of_typed", table)):
        with given.open("rb") as raw, io.TextIOWrapper(raw) as piped:
            monkeypatch.setattr(sys, "stdin", piped)
            assert run(capsys, "predict", tmp_path / name, "-").out == expected


# --- predictions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(capsys, tmp_path):
    """A model of digits, its data, and its two best labels with scores."""
    path = make("svm", tmp_path)
    found, _ = fitted(capsys, path, "-o", tmp_path / "m")
    return path, found.topk(read(path).X, 2)


def test_predictions_as_json_lines(capsys, tmp_path, model):
    path, (labels, scores) = model
    rows = [json.loads(line) for line in run(capsys, "predict", tmp_path / "m", path, "--to", "jsonl").out.splitlines()]
    assert rows == [{"label": label} for label in labels[:, 0].tolist()]
    run(capsys, "predict", tmp_path / "m", path, "--top-k", "2", "-o", tmp_path / "best.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "best.jsonl").read_text().splitlines()]
    assert [row["labels"] for row in rows] == labels.tolist()
    np.testing.assert_array_equal(np.array([row["scores"] for row in rows], scores.dtype), scores)


def test_predictions_as_csv(capsys, tmp_path, model):
    path, (labels, scores) = model
    run(capsys, "predict", tmp_path / "m", path, "-o", tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text().splitlines() == ["label", *map(str, labels[:, 0])]
    run(capsys, "predict", tmp_path / "m", path, "--top-k", "2", "-o", tmp_path / "two.csv")
    with (tmp_path / "two.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["label_1", "label_2", "score_1", "score_2"]
    assert [int(row["label_2"]) for row in rows] == labels[:, 1].tolist()
    np.testing.assert_array_equal(np.array([row["score_1"] for row in rows], scores.dtype), scores[:, 0])


def test_predictions_as_parquet(capsys, tmp_path, model):
    parquet = pytest.importorskip("pyarrow.parquet")
    path, (labels, scores) = model
    run(capsys, "predict", tmp_path / "m", path, "--top-k", "2", "-o", tmp_path / "best.parquet")
    found = parquet.read_table(tmp_path / "best.parquet").to_pydict()
    assert found["labels"] == labels.tolist()
    np.testing.assert_array_equal(np.array(found["scores"], scores.dtype), scores)
    refused(run(capsys, "predict", tmp_path / "m", path, "--to", "parquet"), "needs the name of a file")


@pytest.mark.parametrize("sets", [[[], [], ["b", "a"]], []], ids=["first rows without labels", "no rows"])
def test_the_model_tells_the_types_of_parquet(tmp_path, sets):
    parquet = pytest.importorskip("pyarrow.parquet")
    model = LinearModel(np.eye(2), np.zeros(2), np.array(["a", "b"]), "multilabel")
    args = argparse.Namespace(top_k=None, proba=True)
    predict._write_parquet([(labels, [0.5] * len(labels)) for labels in sets], model, args, tmp_path / "p")
    found = parquet.read_table(tmp_path / "p")
    assert [str(field.type) for field in found.schema] == ["list<element: string>", "list<element: double>"]
    assert found.to_pydict()["labels"] == sets


def test_predicted_label_sets(capsys, tmp_path):
    path = make("xmc", tmp_path)
    fitted(capsys, path, "-o", tmp_path / "m")
    rows = run(capsys, "predict", tmp_path / "m", path, "--to", "jsonl").out.splitlines()
    text = run(capsys, "predict", tmp_path / "m", path).out.splitlines()
    assert [[str(label) for label in json.loads(row)["labels"]] for row in rows] == [
        line.split("\t") if line else [] for line in text
    ]
    refused(run(capsys, "predict", tmp_path / "m", path, "--to", "csv"), "sets of labels differ in size")


def test_json_of_any_depth_is_refused(tmp_path):
    path = tmp_path / "deep.jsonl"
    path.write_text('{"text": "a", "label": "b"}\n{"text": ' + "[" * 100_000 + "\n")
    with pytest.raises(DataFormatError, match="line 2: is no JSON"):
        read(path)

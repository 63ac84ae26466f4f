"""Several files are one data set: that of a file with the rows of all, one after another."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from manyclass.io import DataFormatError, convert, detect_format, read
from manyclass.io.formats import joined
from manyclass.io.store import RowStore
from test_cli_support import refused, run
from test_data_typed import WRITERS

LINES = [f"{'ab'[k % 2]} {k + 1}:{k + 0.5} {k + 3}:1" for k in range(9)]
WORDS = ["red hat", "blue sky", "red sky", "green hat", "blue hat", "green sky", "red red", "sky", "hat"]
ROWS = [f'"{words}",{"ab"[k % 2]},{k}' for k, words in enumerate(WORDS)]


def save(folder, names, lines, header=None):
    """The lines in as many files, some of which may have more than others."""
    folder.mkdir(exist_ok=True)
    for name, part in zip(names, np.array_split(np.array(lines, dtype=object), len(names))):
        content = "\n".join([*([header] if header else []), *part]).encode()  # without a line end
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return [folder / name for name in names]


def same(found, expected):
    np.testing.assert_array_equal(found.X.toarray(), expected.X.toarray())
    np.testing.assert_array_equal(found.y, expected.y)
    assert (found.format, found.layout, found.zero_based) == (expected.format, expected.layout, expected.zero_based)
    assert found.notes[1:] == expected.notes


@pytest.mark.parametrize("names", [["1.svm", "0.svm.gz", "2.svm"], ["0.svm", "1.svm"]])
def test_svmlight_files_in_the_order_given(tmp_path, names):
    files = save(tmp_path / "all", names, LINES)
    whole = read(save(tmp_path, ["whole.svm"], LINES)[0])
    same(read(files), whole)
    assert read(files).source == f"{names[0]} and {len(names) - 1} more"
    np.testing.assert_array_equal(read(tmp_path / "all").y, read([tmp_path / "all" / x for x in sorted(names)]).y)
    assert read(str(tmp_path / "all" / "*.svm*")).notes == read(tmp_path / "all").notes


def test_the_base_of_features_is_that_of_all_files(tmp_path):
    files = save(tmp_path / "all", ["0.svm", "1.svm"], ["a 1:1", "b 2:1", "a 0:3"])
    assert read(files).X.toarray().tolist() == [[0, 1, 0], [0, 0, 1], [3, 0, 0]]
    assert read(files[0]).n_features == 2


@pytest.mark.parametrize("header", ["text,label,number", None])
@pytest.mark.parametrize("n", [2, 4])
def test_tables_with_and_without_headers(tmp_path, n, header):
    names = [f"part-{k}.csv" for k in range(n)]
    save(tmp_path / "all", names, ROWS, header)
    whole = save(tmp_path, ["whole.csv"], ROWS, header)[0]
    options = {} if header else {"text_column": 0, "label_column": 1, "header": False}
    same(read(tmp_path / "all", **options), read(whole, **options))


def test_the_numbers_of_columns_without_texts(tmp_path):
    save(tmp_path / "all", ["a.csv", "b.csv"], [f"{k},{k * k},{'xy'[k % 2]}" for k in range(8)], "one,two,label")
    (tmp_path / "all" / "c.csv").write_text("one,two,label\n")  # no rows
    (tmp_path / "all" / "d.csv").write_text("")
    found = read(tmp_path / "all")
    assert found.X.shape == (8, 2)
    assert found.vectorizer.number_columns_ == ["one", "two"]


@pytest.mark.parametrize("format", WRITERS)
def test_typed_tables(tmp_path, format):
    (tmp_path / "all").mkdir()
    columns = {"text": WORDS, "label": ["a", "b", "b"] * 3}
    for k in range(3):
        part = {name: values[3 * k : 3 * k + 3] for name, values in columns.items()}
        WRITERS[format](tmp_path / "all" / f"{k}.{format}", part)
    WRITERS[format](tmp_path / f"whole.{format}", columns)
    same(read(tmp_path / "all"), read(tmp_path / f"whole.{format}"))


def test_a_folder_has_other_files_too(tmp_path):
    save(tmp_path / "all", ["b.svm", "a.svm"], LINES)
    for name in ("README", "_SUCCESS", ".a.svm.crc"):
        (tmp_path / "all" / name).write_text("nothing")
    (tmp_path / "all" / "more.svm").mkdir()
    found = read(tmp_path / "all")
    assert found.n_samples == 9
    assert found.notes[0].endswith("b.svm; not read: 'README', 'more.svm'")
    assert found.notes[0].startswith("2 files, ")
    (tmp_path / "all" / "b.svm").unlink()
    assert read(tmp_path / "all").source == "a.svm"
    save(tmp_path / "all" / "more.svm", ["c.svm"], LINES)
    assert read(str(tmp_path / "**" / "*.svm")).n_samples == 4 + 9
    (tmp_path / "[1].svm").write_text("a 1:1\n")  # the name of a file, and a pattern that does not match it
    assert read(tmp_path / "[1].svm").n_samples == 1


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"0.svm": "a 1:1\nb 2:2\n", "1.svm": "", "2.svm": "a 1:1\n\nb 2:x\n"}, {}, r"2\.svm, line 3: .*'2:x'"),
        ({"0.svm": "a 1:1\nb\n", "1.svm": "a 1:1,2\n"}, {}, r"1\.svm, line 1: "),
        ({"0.svm": "a 1:1\n", "1.svm": "a,b 1:1\n"}, {"task": "classification"}, r"1\.svm, line 1: 2 labels"),
        ({"0.svm": "1 1:1\n", "1.svm": "2 2:1\nx 1:1\n"}, {"task": "regression"}, r"1\.svm, line 2: the label 'x'"),
        ({"0.csv": "text,label\na,b\n", "1.csv": "text,label\n\na\n"}, {}, r"1\.csv, line 3: 1 fields; expected 2"),
        ({"0.csv": "text,label\na,b\n", "1.csv": "label,text\nb,a\n"}, {}, r"1\.csv, line 1: its columns are 'label'"),
        ({"0.csv": "text,label\na,b\n", "1.csv": "a,b\n"}, {}, r"1\.csv, line 1: its columns are 'a', 'b'; expected"),
        ({"0.csv": "a,b\nc,d\n", "1.csv": "a,b\nc,d\n"}, {}, r"1\.csv, line 1: the first line is that of .*header="),
        ({"0.csv": "n,label\n1,b\n", "1.csv": "n,label\n2,b\nx,b\n"}, {"number_columns": "n"}, r"1\.csv, line 3: 'x'"),
        ({"0.csv": 'text,label\n"a,b\n', "1.csv": "text,label\na,b\n"}, {}, r"0\.csv, line 2: unexpected end"),
        ({"0.csv": "text,label\na,b\n", "1.csv": "text,label\na,\n"}, {}, r"1\.csv, line 2: the label is empty"),
        ({"0.jsonl": '{"text": "a"}\n', "1.jsonl": '{"text": "b"}\n[]\n'}, {}, r"1\.jsonl, line 2: has a JSON list"),
        ({"0.csv": "text,label\na,b\n", "1.svm": "a 1:1\n"}, {}, r"1\.svm: has the format 'svmlight', and .*'csv'"),
        (
            {"0.txt": "1 1 1\n0 0:1\n", "1.txt": "1 1 1\n0 0:1\n"},
            {},
            r"several files of the format 'xmc'",
        ),
        ({"0.svm": "", "1.svm": ""}, {}, "all files are empty"),
    ],
)
def test_an_error_names_the_file_and_its_line(tmp_path, files, options, message):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataFormatError, match=message):
        read([tmp_path / name for name in files], **options)


def test_parquet_files_with_other_columns(tmp_path):
    WRITERS["parquet"](tmp_path / "0.parquet", {"text": ["a"], "label": ["x"]})
    WRITERS["parquet"](tmp_path / "1.parquet", {"text": ["a"], "code": ["x"]})
    with pytest.raises(DataFormatError, match=r"1\.parquet: its columns are 'text', 'code'; expected .*0\.parquet"):
        read(tmp_path)


def test_what_is_not_there_or_there_twice(tmp_path):
    (file,) = save(tmp_path, ["0.svm"], LINES)
    with pytest.raises(FileNotFoundError, match="no file matches this pattern"):
        read(str(tmp_path / "*.csv"))
    with pytest.raises(FileNotFoundError, match="nothere"):
        read([file, tmp_path / "nothere.svm"])
    with pytest.raises(ValueError, match="is given twice; expected different files"):
        read([file, tmp_path / "*.svm"])
    with pytest.raises(ValueError, match="no file is given"):
        read([])
    assert joined([file]) == file


def test_a_store_of_several_files(tmp_path):
    files = save(tmp_path / "all", ["0.svm", "1.svm.gz", "2.svm"], LINES)
    store = convert(files, tmp_path / "all.store", shard_rows=4)
    whole = read(save(tmp_path, ["whole.svm"], LINES)[0])
    np.testing.assert_array_equal(store.rows()[:].toarray(), whole.X.toarray())
    assert store.n_shards == 3
    assert detect_format(joined(tmp_path / "all.store")) == "store"
    assert isinstance(store, RowStore)


def test_labels_of_all_rows_in_a_file_of_their_own(tmp_path):
    save(tmp_path / "all", ["0.svm", "1.svm"], LINES)
    (tmp_path / "labels.txt").write_text("\n".join(map(str, range(9))))
    assert read(tmp_path / "all", labels=tmp_path / "labels.txt").y.tolist() == list(range(9))


# --- from a shell ----------------------------------------------------------------------------------------------------


def test_every_command_reads_several_files(capsys, tmp_path):
    whole = save(tmp_path, ["whole.csv"], ROWS, "text,label,number")[0]
    files = save(tmp_path / "all", ["0.csv", "1.csv.gz"], ROWS, "text,label,number")
    words = ["--text-column", "text", "--label-column", "label"]
    for name, data in {"whole": [whole], "several": files}.items():
        assert run(capsys, "fit", *data, "-o", tmp_path / name, *words, "--valid", tmp_path / "all").code == 0
    expected = run(capsys, "predict", tmp_path / "whole", whole).out
    assert len(expected.splitlines()) == 9
    several = ([*files], [tmp_path / "all"], [tmp_path / "all" / "*.csv*"])
    for data in several:
        assert run(capsys, "predict", tmp_path / "several", "--n-jobs", 1, *data).out == expected
    for words in (["score", "--json"], ["certify", "--json"], ["explain", "--json"]):
        found = [run(capsys, words[0], tmp_path / "several", *data, *words[1:]) for data in ([whole], *several)]
        assert {ran.code for ran in found} == {0}
        assert len({ran.out for ran in found}) == 1
    assert run(capsys, "convert", *files, "-o", tmp_path / "a.npz").code == 0
    assert read(tmp_path / "a.npz").n_samples == 9
    assert run(capsys, "calibrate", tmp_path / "several", *files, "-o", tmp_path / "b").code == 0
    assert run(capsys, "report", tmp_path / "several", *files, "-o", tmp_path / "b.html").code == 0
    assert run(capsys, "report", tmp_path / "several", "-o", tmp_path / "b.html").code == 0
    told = run(capsys, "info", tmp_path / "all")
    assert told.code == 0
    assert "2 files" in told.out


def test_what_cannot_be_read_together_is_told(capsys, tmp_path):
    files = save(tmp_path / "all", ["0.svm", "1.svm"], LINES)
    output = ["-o", tmp_path / "m"]
    refused(run(capsys, "fit", "-", files[0], *output), "- is standard input, and is read alone")
    refused(run(capsys, "fit", *files, tmp_path / "2.svm", *output), "DATA", "2.svm: No such file or directory")
    refused(run(capsys, "fit", tmp_path / "*.csv", *output), "DATA", "*.csv: no file matches this pattern")
    refused(run(capsys, "fit", files[0], *output, files[1]), "stand side by side, with no option between them")
    refused(run(capsys, "convert", *files, "-o", files[1]), "is the input itself")
    assert run(capsys, "fit", *files, *output).code == 0
    refused(run(capsys, "convert", tmp_path / "m", *files, "-o", tmp_path / "b.npz"), "its format cannot be detected")
    refused(run(capsys, "fit", *files, *output, "--solver", "out_of_core"), "is for row stores: write")

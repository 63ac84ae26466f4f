"""Tables with a column of texts: columns, layouts, labels, and what is wrong with them."""

from __future__ import annotations

import csv
import gzip
import json
import tempfile
import threading
import warnings
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from manyclass.io import DataFormatError, TableLayout, TextVectorizer, read_table, tables


def identical(X, Z) -> bool:
    same_parts = [np.array_equal(getattr(X, part), getattr(Z, part)) for part in ("data", "indices", "indptr")]
    return all(same_parts) and X.dtype == Z.dtype and X.shape == Z.shape


def table(folder, rows, name="table.csv", **options):
    path = Path(folder, name)
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, **options).writerows(rows)
    return path


def save(folder, content, name="table.csv"):
    path = Path(folder, name)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
            st.sampled_from(["red", "blue", "a,b", 'say "c"', "two\nlines"]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_text_is_read_from_csv(rows):
    with tempfile.TemporaryDirectory() as folder:
        path = table(folder, [("text", "label"), *rows])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            data = read_table(path, vectorizer={"kind": "hashing", "n_features": 32, "analyzer": "char"})
    assert data.y.tolist() == [label for _, label in rows]
    # A text that is written in quotes loses no line end; only the csv module's own rules are between.
    expected = TextVectorizer("hashing", n_features=32, analyzer="char").transform([text for text, _ in rows])
    assert identical(data.X, expected)
    assert ["no text in column 'text'" in str(each.message) for each in caught] == [True] * (expected.nnz == 0)


LAYOUTS = {
    "header": ("text,category\none two,A\nthree,B\n", {}, "csv"),
    "header, other order and case": ("Label;TEXT\nA;one two\nB;three\n", {}, "csv"),
    "two names, neither of them only a text's or only a label's": ("Language,Word\nA,one two\nB,three\n", {}, "csv"),
    "tabs": ("one two\tA\nthree\tB\n", {}, "tsv"),
    "tabs found": ("A\tone two\nB\tthree\n", {}, "csv"),
    "three columns": ("id,text,code\n7,one two,A\n8,three,B\n", {}, "csv"),
    "positions": ("A,one two,x\nB,three,y\n", {"text_column": 1, "label_column": "0"}, "csv"),
    "names": ("who,what,why\nA,x,one two\nB,y,three\n", {"text_column": "why", "label_column": "WHO"}, "csv"),
    "unknown label name": ("phrase,text\nA,one two\nB,three\n", {}, "csv"),
    "quotes": ('text,category\n"one two",A\n"three",B\n', {}, "csv"),
    "windows, mark, empty lines": ("\ufefftext,category\r\none two,A\r\n\r\nthree,B", {}, "csv"),
    "no header although a name occurs": ("class,one two\nB,three\n", {"header": False}, "csv"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packed", [False, True])
def test_columns_are_found(layout, packed, tmp_path):
    content, options, format = LAYOUTS[layout]
    raw = content.encode()
    path = save(tmp_path, gzip.compress(raw) if packed else raw)
    data = read_table(path, format=format, **options)
    assert data.vectorizer.to_state()[1]["vocabulary"].tobytes() == b"onethreetwo"
    assert data.y.tolist() == (["class", "B"] if "although" in layout else ["A", "B"])
    assert data.X.toarray().astype(bool).tolist() == [[True, False, True], [False, True, False]]
    assert data.format == format


def test_of_two_columns_labels_are_those_that_recur(tmp_path):
    words = ["ab", "cd", "ef", "gh", "ij", "kl"]
    rows = "".join(f"{word},{label}\n" for word, label in zip(words, ["a long label", "another label"] * 3))
    data = read_table(save(tmp_path, rows))
    assert data.y.tolist() == ["a long label", "another label"] * 3
    assert data.notes == ("texts from column 0, labels from 1; no header: the first line is a row",)
    # A class that is called as a column may be: only where the other field names a column, too, it is a header.
    assert read_table(save(tmp_path, f"xy,language\n{rows}")).y.tolist()[0] == "language"


def test_notes_say_which_columns_were_used(tmp_path):
    data = read_table(save(tmp_path, "id,text,code\n7,one,A\n"))
    assert data.notes == ("texts from column 'text', labels from 'code'",)
    assert read_table(save(tmp_path, "id,text\n7,one\n")).notes == ("texts from column 'text', no labels",)
    assert read_table(save(tmp_path, "id,text\n7,one\n")).y is None
    bare = read_table(save(tmp_path, "one two\nthree\n")).notes
    assert bare == ("texts from column 0, no labels; no header: the first line is a row",)
    assert read_table(save(tmp_path, "text,label\none,A\n"), with_labels=False).notes == ("texts from column 'text'",)


def test_a_fitted_vectorizer_is_used_as_it_is(tmp_path):
    train = read_table(save(tmp_path, "text,label\none two,A\nthree,B\n"))
    test = read_table(save(tmp_path, "text,label\nthree four,A\n"), vectorizer=train.vectorizer)
    assert test.X.toarray().tolist() == [[0, 1, 0]]
    assert read_table(save(tmp_path, "text\none\n"), vectorizer=train.vectorizer, n_features=3).n_features == 3
    with pytest.raises(ValueError, match="n_features is 4; expected 3, the columns of the vectorizer"):
        read_table(save(tmp_path, "text\none\n"), vectorizer=train.vectorizer, n_features=4)


HEADED = TableLayout(True, 2, "why", "who", ",", '"', None)
BARE = TableLayout(False, 3, 1, 2, ";", None, "|")


@pytest.mark.parametrize(
    ("content", "options", "found"),
    [
        ("who,why\nA,one two\nB,three\n", {"text_column": "why"}, HEADED),
        ("who,why\nA,one two\nB,three\n", {"text_column": 1, "label_column": 0, "header": True}, HEADED),
        (
            "7;one two;A|B\n8;three;B\n",
            {"text_column": 1, "label_column": 2, "label_separator": "|", "quote": None},
            BARE,
        ),
        (
            "x,x,y\nA,one two,B\n",
            {"header": True, "text_column": 1, "label_column": "y"},
            TableLayout(True, 3, 1, "y", ",", '"', None),
        ),
        ("text\none\n", {}, TableLayout(True, 1, "text", None, ",", '"', None)),
    ],
)
def test_the_layout_of_a_table_is_kept(content, options, found, tmp_path):
    data = read_table(save(tmp_path, content), **options)
    assert data.layout == found
    again = TableLayout.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again == found
    same = read_table(save(tmp_path, content, "same.csv"), layout=again, vectorizer=data.vectorizer)
    assert identical(same.X, data.X)
    assert same.layout == found


@pytest.mark.parametrize(
    ("content", "layout", "options", "texts", "labels"),
    [
        ("why,who\naa,A\n", HEADED, {}, ["aa"], ["A"]),
        ("text, Who ,WHY,label\n,A,aa,B\n", HEADED, {}, ["aa"], ["A"]),
        ("text;who;why\n,;A;aa\n", HEADED, {}, ["aa"], ["A"]),
        ("why\naa\nbb\n", HEADED, {"with_labels": False}, ["aa", "bb"], None),
        ("why,text\naa,\n", HEADED, {"with_labels": False}, ["aa"], None),
        ("why,who\naa,\n", HEADED, {"with_labels": False}, ["aa"], None),
        ("why,text,who\naa,bb,A\n", HEADED, {"text_column": "text"}, ["bb"], ["A"]),
        ("why,text,who\naa,bb,A\n", HEADED, {"label_column": 1}, ["aa"], ["bb"]),
        ("why\naa\n", HEADED, {"with_labels": False, "header": False}, ["why", "aa"], None),
        ("A,aa\nB,bb\n", HEADED, {"text_column": 1, "label_column": 0, "header": False}, ["aa", "bb"], ["A", "B"]),
        ('7;"aa;A\n8;bb;B\n', BARE, {"label_separator": None}, ['"aa', "bb"], [["A"], ["B"]]),
        ("7;aa, bb;A\n8;cc;A|B\n", BARE, {}, ["aa, bb", "cc"], [["A"], ["A", "B"]]),
        ("id;text;label\n7;aa;A\n", BARE, {}, ["text", "aa"], [["label"], ["A"]]),
        ("id;text;label\n7;aa;A\n", BARE, {"header": True}, ["aa"], [["A"]]),
        ("label;text;id\nA;aa;7\n", BARE, {"text_column": "text", "label_column": "label"}, ["aa"], [["A"]]),
        ("aa, bb\ncc\n", BARE, {"with_labels": False}, ["aa, bb", "cc"], None),
        ("text\ncode\n", BARE, {"with_labels": False}, ["text", "code"], None),
        ("aa,A,x\n", BARE, {"delimiter": ",", "text_column": 0, "label_column": 1}, ["aa"], [["A"]]),
    ],
)
def test_a_table_is_read_as_the_one_before(content, layout, options, texts, labels, tmp_path):
    vectorizer = TextVectorizer("hashing", n_features=2**18, analyzer="char")
    data = read_table(save(tmp_path, content), layout=layout, vectorizer=vectorizer, **options)
    assert identical(data.X, vectorizer.transform(texts))
    if labels is None:
        assert data.y is None
    elif layout is BARE:
        assert [data.label_names[row.indices].tolist() for row in data.y] == labels
    else:
        assert data.y.tolist() == labels


@pytest.mark.parametrize(
    ("content", "layout", "options", "what"),
    [
        ("text,label\naa,A\n", HEADED, {}, "the first line has 'text', 'label'; expected a header with .*'why'.*text_"),
        ("aa\nbb\n", HEADED, {"with_labels": False}, "the first line has 'aa'; .*header=False"),
        ("why,text\naa,\n", HEADED, {}, "has 'why', 'text'; expected .* 'who' of labels.*label_column="),
        ("why,why,who\na,b,A\n", HEADED, {}, "has 2 columns 'why'"),
        ("aa,A\nbb,B\n", HEADED, {"header": False}, "2 columns without a header; .* in column 'why': pass the index"),
        ("aa;A\n", BARE, {}, "2 columns; expected 3, as in the training data, whose texts are in column 1"),
        ("aa\nbb\n", BARE, {}, "1 column; expected 3, .* whose labels are in column 2: .*label_column="),
        (
            "7,aa,A\n8,bb,B\n",
            BARE,
            {"with_labels": False},
            "1 column with delimiter ';'; expected 3, .* with delimiter ',': pass delimiter=",
        ),
        ("7\taa\tA\n", BARE, {"with_labels": False}, "delimiter="),
    ],
)
def test_a_table_unlike_the_one_before_is_refused(content, layout, options, what, tmp_path):
    vectorizer = TextVectorizer("hashing", analyzer="char")
    with pytest.raises(DataFormatError, match=what) as caught:
        read_table(save(tmp_path, content), layout=layout, vectorizer=vectorizer, **options)
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "change",
    [
        {"header": 1}, {"columns": "2"}, {"text_column": 1.0}, {"text_column": 2}, {"label_column": -1},
        {"label_column": True}, {"header": False}, {"delimiter": ""}, {"delimiter": ",,"}, {"quote": "no"},
        {"colour": 1}, {"label_separator": 3},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_layout_is_refused(change):
    with pytest.raises(ValueError, match="the layout of the table is damaged"):
        TableLayout.from_dict(HEADED.to_dict() | change)
    with pytest.raises(ValueError, match="the layout of the table is damaged"):
        TableLayout.from_dict({"header": True})


def test_words_that_new_texts_will_not_share_are_told(tmp_path):
    rows = [f"word{i} common,{'AB'[i % 2]}" for i in range(200)]
    alone = save(tmp_path, "\n".join(["text,label", *(row.replace(" common", "") for row in rows)]))
    assert read_table(alone).notes[1].startswith("about 100% of the words of new texts will be unknown")
    for options in ({"analyzer": "char_wb", "ngram_range": (1, 4)}, {"ngram_range": (1, 2)}, {"kind": "hashing"}):
        assert len(read_table(alone, vectorizer=TextVectorizer(**options)).notes) == 1
    assert "about 50%" in read_table(save(tmp_path, "\n".join(["text,label", *rows]))).notes[1]
    assert len(read_table(save(tmp_path, "\n".join(["text,label", *rows[:2] * 100]))).notes) == 1


def test_texts_without_a_known_term_are_counted(tmp_path):
    vectorizer = TextVectorizer().fit(["one two"])
    data = read_table(save(tmp_path, 'text\none\nthree\n""\n" "\n'), vectorizer=vectorizer)
    assert data.notes[1] == "3 texts of 4 without a term that the vectorizer knows, 2 of them empty"
    data = read_table(save(tmp_path, "text\none\nthree\n"), vectorizer=vectorizer)
    assert data.notes[1] == "1 text of 2 without a term that the vectorizer knows"
    assert len(read_table(save(tmp_path, "text\none\ntwo\n"), vectorizer=vectorizer).notes) == 1
    for content in ('text,label\n"",A\n', "text,label\nthree,A\n"):
        with pytest.warns(UserWarning, match=r"no text in column 'text' of .*table\.csv has a term .*text_column"):
            data = read_table(save(tmp_path, content), vectorizer=vectorizer)
        assert data.X.nnz == 0


def test_a_name_that_two_columns_have_is_not_enough(tmp_path):
    path = save(tmp_path, "text,label,text\naa,A,bb\n")
    with pytest.raises(ValueError, match=r"2 columns of that name: pass the index of one \(0, 2\)"):
        read_table(path, text_column="text")
    assert read_table(path, text_column=2, label_column="label", header=True).layout.text_column == 2


def test_labels_of_a_table(tmp_path):
    path = save(tmp_path, "text,label\naa,3\nbb,1\n")
    assert read_table(path).y.tolist() == [3, 1]
    assert read_table(path, task="regression").y.tolist() == [3.0, 1.0]
    codes = read_table(save(tmp_path, "text,label\naa,0042\nbb,42\n"))
    assert codes.y.tolist() == ["0042", "42"]
    many = read_table(save(tmp_path, "text,label\naa,x| y\nbb,\ncc,y\n"), label_separator="|")
    assert many.label_names.tolist() == ["x", "y"]
    assert many.y.toarray().tolist() == [[1, 1], [0, 0], [0, 1]]


def test_texts_longer_than_the_csv_module_allows(tmp_path):
    limit = csv.field_size_limit()
    path = table(tmp_path, [("text", "label"), ("word " * 100_000, "A")])
    assert read_table(path).X.toarray().tolist() == [[1.0]]
    assert csv.field_size_limit() == limit
    with pytest.raises(DataFormatError):
        read_table(save(tmp_path, "text,label\na\n"))
    assert csv.field_size_limit() == limit


def test_threads_that_read_at_a_time_share_the_limit_and_put_it_back(tmp_path, monkeypatch):
    limit = csv.field_size_limit()
    path = table(tmp_path, [("text", "label"), ("aa", "B"), ("word " * 100_000, "A")])
    short = save(tmp_path, "text,label\naa,1\n", "short.csv")
    begun, ended = (threading.Event(), threading.Event()), (threading.Event(), threading.Event())
    found = []

    class Waiting(TextVectorizer):
        """Its texts are read up to the first; the others when it is told to go on."""

        def __init__(self, number):
            super().__init__()
            self.number = number

        def fit_transform(self, texts):
            head = [next(texts)]
            begun[self.number].set()
            assert ended[self.number].wait(30)
            return super().fit_transform(chain(head, texts))

    def read_it(path, number):
        found.append(read_table(path, vectorizer=Waiting(number)).y.tolist())

    monkeypatch.setattr(tables, "_SAMPLE", 2)  # the long field is read after the other thread has ended
    threads = [threading.Thread(target=read_it, args=each) for each in ((short, 0), (path, 1))]
    for number in (0, 1):
        threads[number].start()
        assert begun[number].wait(30)
    for number in (0, 1):
        ended[number].set()
        threads[number].join(30)
    assert found == [[1], ["B", "A"]]
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("content", "options", "line", "what"),
    [
        ("text,label\naa,1\nbb\n", {}, 3, "1 fields; expected 2"),
        ('text,label\n"a\nb",1\nbb,2,3\n', {}, 4, "3 fields; expected 2"),
        ('text,label\naa,1\n"bb,2\n', {}, 3, "unexpected end of data.*quote=None"),
        ('text,label\naa,1\n"b"b,2\n', {}, 3, "expected after"),
        (b"text,label\naa,1\n\xff,2\n", {}, 3, "not UTF-8"),
        ("text,label\naa,1\nbb,\n", {}, 3, "the label is empty"),
        ("text,label\naa,1\nbb,x\n", {"task": "regression"}, 3, "'x' is not a finite number"),
        ("text,label\naa,1.5\nbb,2\ncc,nan\n", {}, 4, "'nan' is not finite"),
        ("text,label\n", {}, 1, "no rows below the header"),
        ("a,b,c\nd,e,f\n", {}, 1, "the column of texts is not known"),
        ("id,where,x\n1,2,3\n", {"header": True}, 1, "the column of texts is not known.*'id', 'where', 'x'"),
        ("label\naa\n", {}, 1, "its only column, 'label', is taken for labels; .*pass it as text_column="),
        ("aa\nbb\n", {"label_column": 0}, 1, "its only column, 0, is taken for labels"),
        ("text,label\n!,1\n?,2\n", {}, None, "the texts give no features"),
        ("", {}, None, "it has no rows"),
    ],
)
def test_a_wrong_table_is_named(content, options, line, what, tmp_path):
    with pytest.raises(DataFormatError, match=f"(?s){what}") as caught:
        read_table(save(tmp_path, content), **options)
    assert caught.value.line == line


@pytest.mark.parametrize("kinds", [{}, {"category_columns": "text"}])
def test_rows_without_a_label_can_be_left_out(kinds, tmp_path):
    path = save(tmp_path, "text,label\naa,x\nbb,\ncc,y\naa, \n")
    with pytest.raises(DataFormatError, match=r"line 3: the label is empty.* unlabeled='skip'"):
        read_table(path, **kinds)
    data = read_table(path, **kinds, unlabeled="skip")
    assert data.y.tolist() == ["x", "y"]
    assert data.X.shape == (2, 2)  # the others have no part in the vocabulary either
    assert "2 rows without a label left out" in data.notes
    assert read_table(path, **kinds, with_labels=False).X.shape[0] == 4
    with pytest.raises(ValueError, match="unlabeled is 'no'"):
        read_table(path, **kinds, unlabeled="no")
    sets = read_table(path, **kinds, label_separator=";", unlabeled="skip")  # a row of no label is one of the sets
    assert sets.y.getnnz(axis=1).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"text_column": "nothing"}, r"text_column is 'nothing'; expected a column of .* \('text', 'label'\)"),
        ({"label_column": 2}, "label_column is 2; expected 0 to 1"),
        ({"label_column": -1}, "label_column is -1"),
        ({"text_column": 0, "label_column": 0}, "both column 0"),
        ({"header": False, "text_column": "text"}, "the table has no header"),
        ({"vectorizer": {"kind": "bm25"}}, "'kind' parameter of TextVectorizer must be"),
        ({"dtype": int}, "dtype is"),
    ],
)
def test_wrong_arguments_are_named(options, what, tmp_path):
    with pytest.raises(ValueError, match=what):
        read_table(save(tmp_path, "text,label\naa,1\n"), **options)


def test_a_single_column_can_be_called_label(tmp_path):
    path = save(tmp_path, "label\naa\nbb\n")
    for options in ({"text_column": "label"}, {"text_column": 0}, {"with_labels": False}):
        data = read_table(path, **options)
        assert data.y is None
        assert data.X.shape == (2, 2)


def test_quotes_can_be_part_of_the_text(tmp_path):
    path = save(tmp_path, '"hello" he said\tA\nbye\tB\n')
    with pytest.raises(DataFormatError, match="quote=None"):
        read_table(path, format="tsv")
    assert read_table(path, format="tsv", quote=None).y.tolist() == ["A", "B"]

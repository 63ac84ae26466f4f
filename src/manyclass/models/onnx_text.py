"""The features of texts as nodes of an ONNX graph, for onnxruntime: lower case, words, n-grams, tf-idf.

ONNX has no operators for Python's lower case and word characters: the lower case of its StringNormalizer depends on the
locale of the machine, and RE2, the regular expressions of onnxruntime's Tokenizer, knows ASCII words only. Here the
tables of this Python's Unicode version are written into the graph: characters with another lower case, and the classes
of the regular expressions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from manyclass.io.text import TextVectorizer
    from manyclass.models.onnx import Graph

__all__ = ["add_features"]


def add_features(graph: Graph, vectorizer: TextVectorizer, texts: str) -> str:
    """Add nodes from ``texts``, strings of shape (n,), to the rows of the vectorizer; returns their name.

    Raises
    ------
    ValueError
        If the vectorizer cannot be written with the operators of ONNX so that it gives the same features.
    """
    if vectorizer.kind != "tfidf" or vectorizer.analyzer != "word":
        what, why = (
            ("kind='hashing'", "onnxruntime has no operator for its hash function")
            if vectorizer.kind != "tfidf"
            else (f"analyzer={vectorizer.analyzer!r}", "onnxruntime has no operator for n-grams of characters as here")
        )
        raise ValueError(
            f"texts as input of an ONNX file need kind='tfidf' and analyzer='word', and the vectorizer of this model "
            f"has {what}: {why}. Pass texts=False for a model of rows of features, which model.rows(texts) makes"
        )
    add, constant = graph.add, graph.constant
    tables = _tables()
    if vectorizer.lowercase:
        texts = _lower(graph, texts)
    tokens = _split(graph, texts, "tokens_found", f"[{_ranges(tables.words)}]{{2,}}")
    # One empty token more: an array without columns, where no text has a word, is refused by later operators.
    add("Shape", [texts], "n_texts")
    add("Concat", ["n_texts", constant("one", np.array([1], np.int64))], "column_shape", axis=0)
    add("Expand", [constant("empty", np.array([[""]], object)), "column_shape"], "empty_column")
    add("Concat", [tokens, "empty_column"], "tokens", axis=1)

    grams = [term.split(" ") for term in vectorizer.get_feature_names_out()]
    low, high = vectorizer.ngram_range
    by_length = [[j for j, gram in enumerate(grams) if len(gram) == n] for n in range(1, high + 1)]
    starts = np.cumsum([0, *(n * len(columns) for n, columns in enumerate(by_length, 1))])[:-1]
    order = [j for columns in by_length for j in columns]
    counts = add(
        "TfIdfVectorizer",
        ["tokens"],
        "counts",
        mode="TF",
        min_gram_length=low,
        max_gram_length=high,
        max_skip_count=0,
        ngram_counts=starts.tolist(),
        ngram_indexes=order,
        pool_strings=[word for j in order for word in grams[j]],
    )
    if vectorizer.sublinear_tf:  # 1 + log(c), and 0 for c = 0
        unit = constant("unit", np.float32(1))
        add("Log", [add("Max", [counts, unit], "at_least_one")], "logarithms")
        counts = add("Add", ["logarithms", add("Min", [counts, unit], "present")], "dampened")
    add("Mul", [counts, constant("idf", np.asarray(vectorizer.to_state()[1]["idf"], np.float32))], "weighted")
    add("ReduceL2", ["weighted", "one"], "length", keepdims=1)
    add("Max", ["length", constant("least", np.float32(1e-30))], "positive_length")
    return add("Div", ["weighted", "positive_length"], "features")


def _split(graph: Graph, texts: str, out: str, expression: str) -> str:
    """The matches of a regular expression in each text, and empty strings behind them, as one dimension more."""
    return graph.add(
        "Tokenizer",
        [texts],
        out,
        "com.microsoft",
        tokenexp=expression,
        mark=0,
        mincharnum=1,
        pad_value="",
    )


def _lower(graph: Graph, texts: str) -> str:
    """Texts in lower case, as ``str.lower``, with a blank behind: pieces, the lower case of each, joined.

    A piece is a character; or, where a capital sigma ends a word, the cased letter before it up to the character that
    ends the word, split again so that the sigma and the character before it stay together.
    """
    add, constant = graph.add, graph.constant
    tables = _tables()
    cased, ignored = _ranges(tables.cased), _ranges(tables.ignored)
    blank = constant("blank", np.array([" "], object))
    add("StringConcat", [texts, blank], "ended")
    end = f"[{cased}][{ignored}]*Σ[{ignored}]*[^{cased}{ignored}]"
    _split(graph, "ended", "pieces", f"(?s){end}|.")
    _split(graph, "pieces", "parts", "(?s).Σ|.")
    lower = {
        **{c: c.lower() for c in tables.characters if c.lower() != c},
        **{c + "Σ": c.lower() + "ς" for c in (*tables.cased, *tables.ignored)},
    }
    add(
        "LabelEncoder",
        ["parts"],
        "changed",
        "ai.onnx.ml",
        keys_strings=list(lower),
        values_strings=list(lower.values()),
        default_string="",
    )
    add("Equal", ["changed", constant("nothing", np.array("", object))], "same")
    add("Where", ["same", "parts", "changed"], "lower_parts")
    add("Reshape", ["lower_parts", constant("flat", np.array([0, -1], np.int64))], "in_line")
    add("Loop", ["", constant("always", np.array(True)), "in_line"], "joined", body=_joining())
    return add("Reshape", ["joined", constant("vector", np.array([-1], np.int64))], "lower")


def _joining() -> Any:
    """The body of a loop that joins neighbors among the strings of each row, until there is one."""
    from onnx import TensorProto, helper, numpy_helper

    numbers = {"zero": [0], "one_": [1], "two": [2], "end": [2**31 - 1]}
    constants = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in numbers.items()]
    constants.append(numpy_helper.from_array(np.array([[""]], object), "nothing_"))
    nodes: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Shape", ["x"], "size", {}),
        # An empty string more where their number is odd.
        ("Mod", ["size", "two"], "odd_sizes", {}),
        ("Slice", ["odd_sizes", "one_", "two", "zero"], "odd", {}),
        ("Slice", ["size", "zero", "one_", "zero"], "rows", {}),
        ("Concat", ["rows", "odd"], "missing", {"axis": 0}),
        ("Expand", ["nothing_", "missing"], "padding", {}),
        ("Concat", ["x", "padding"], "even", {"axis": 1}),
        ("Slice", ["even", "zero", "end", "one_", "two"], "left", {}),
        ("Slice", ["even", "one_", "end", "one_", "two"], "right", {}),
        ("StringConcat", ["left", "right"], "y", {}),
        ("Shape", ["y"], "new_size", {}),
        ("Slice", ["new_size", "one_", "two", "zero"], "width", {}),
        ("Greater", ["width", "one_"], "wider", {}),
        ("Squeeze", ["wider", "zero"], "more", {}),
    ]
    info = helper.make_tensor_value_info
    return helper.make_graph(
        [helper.make_node(operation, inputs, [out], **facts) for operation, inputs, out, facts in nodes],
        "join",
        [
            info("trip", TensorProto.INT64, []),
            info("before", TensorProto.BOOL, []),
            info("x", TensorProto.STRING, ["n", None]),
        ],
        [info("more", TensorProto.BOOL, []), info("y", TensorProto.STRING, ["n", None])],
        constants,
    )


class _Tables:
    """Characters by what this Python's regular expressions and ``str.lower`` do with them."""

    def __init__(self) -> None:
        self.characters = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
        self.words = re.findall(r"\w", "".join(self.characters))
        # A capital sigma behind a cased letter, with characters between that are ignored, is a final one.
        self.cased = [c for c in self.characters if (c + "Σ").lower()[-1] == "ς"]
        before = set(self.cased)
        self.ignored = [c for c in self.characters if c not in before and ("A" + c + "Σ").lower()[-1] == "ς"]


@cache
def _tables() -> _Tables:
    return _Tables()


def _ranges(characters: Iterable[str]) -> str:
    """The inside of a character class for RE2, of characters in ascending order."""
    spans: list[list[int]] = []
    for code in map(ord, characters):
        if spans and spans[-1][1] == code - 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in spans)

"""Reading a table takes memory for its columns and for the result, not for the rows as Python objects."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from manyclass.io import read

RNG = np.random.default_rng(0)
N = 40_000


def numbers_and_categories():
    X, a, b = RNG.normal(size=(N, 8)), RNG.integers(0, 500, N), RNG.integers(0, 20, N)
    header = ",".join([*(f"x{j}" for j in range(8)), "city", "shop", "label"])
    lines = [",".join(f"{v:.4f}" for v in row) + f",city{c},shop{s},{s % 3}" for row, c, s in zip(X, a, b)]
    return "\n".join([header, *lines])


def texts():
    words = np.array([f"w{k}" for k in range(5000)])
    lengths = RNG.integers(5, 30, N)
    terms = iter(words[np.minimum(RNG.zipf(1.2, lengths.sum()), 5000) - 1].tolist())
    lines = [" ".join(next(terms) for _ in range(length)) + f",c{k % 90}" for k, length in enumerate(lengths)]
    return "\n".join(["text,label", *lines])


@pytest.mark.parametrize(("make", "times"), [(numbers_and_categories, 4.5), (texts, 6.0)])
def test_a_table_takes_a_few_times_the_size_of_its_file(tmp_path, make, times):
    path = tmp_path / "table.csv"
    path.write_text(make())
    options = {} if make is texts else {"label_column": "label"}
    small = tmp_path / "small.csv"
    small.write_text("\n".join(path.read_text().splitlines()[:1000]))
    read(small, **options)  # imports, and kernels are loaded
    tracemalloc.start()
    try:
        data = read(path, **options)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    size = path.stat().st_size
    assert data.n_samples == N
    assert peak < times * size

"""Search by binary codes: Hamming distances to all classes, then exact scores of the nearest ones."""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.predict import sort_heap
from manyclass.kernels.search import clear, dot, offer, scatter, start

__all__ = ["hamming_best"]

# mypy: disable-error-code="no-untyped-def"


@inline
def _ones(word):
    # The number of bits that are set; the compiler replaces this sum by one instruction.
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit
def hamming_best(rows, query_codes, vectors, codes, alive, exclude, candidates, spread, values, numbers):
    """The k best of the ``candidates`` classes whose codes are nearest to the row's, among those with ``alive``.

    Of equally near codes the lower class numbers are taken.

    ``spread`` is scratch, a zero of the type of ``values`` for each feature.
    """
    outputs = alive.shape[0]
    words = codes.shape[1]
    size = values.shape[1]
    distance = np.empty(outputs, np.int32)
    at = np.empty(64 * words + 1, np.int64)
    for i in range(values.shape[0]):
        where = rows.indices[rows.indptr[i] : rows.indptr[i + 1]]
        x = rows.data[rows.indptr[i] : rows.indptr[i + 1]]
        scatter(where, x, spread)
        banned = exclude[i]
        for b in range(at.shape[0]):
            at[b] = 0
        for k in range(outputs):
            bits = np.int64(0)
            for w in range(words):
                bits += _ones(codes[k, w] ^ query_codes[i, w])
            if not alive[k] or k == banned:
                bits = np.int64(-1)
            else:
                at[bits] += 1
            distance[k] = bits
        # The largest distance up to which all classes are taken, and how many are taken at the next one.
        radius = 0
        room = candidates
        while radius < at.shape[0] - 1 and at[radius] <= room:
            room -= at[radius]
            radius += 1
        value = values[i]
        number = numbers[i]
        start(value, number, size)
        for k in range(outputs):
            if 0 <= distance[k] <= radius:
                if distance[k] == radius:
                    if room == 0:
                        continue
                    room -= 1
                offer(value, number, size, dot(vectors, k, where, x, spread), k)
        sort_heap(value, number, size)
        clear(where, spread)

"""An array that grows at its end, for results whose length is known only at the end of a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["GrowingArray"]


class GrowingArray:
    """Values appended in blocks, kept in one array with little slack.

    The file's size tells early how long the result will be. Allocations follow that guess, but at most
    fourfold, because the first lines may be unlike the rest. Where NumPy's ``resize`` copies (from 2.5 on it does), a
    growth takes the old and the new buffer for a moment; so little slack is kept, not cut off.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._buffer: npt.NDArray[Any] = np.empty(0, dtype=dtype)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._buffer.dtype

    def extend(self, values: npt.NDArray[Any], fraction: float = 1.0) -> None:
        """Append values; with these, about ``fraction`` of all that will come has come."""
        used = self._used + values.size
        if used > self._buffer.size:
            guess = max(int(1.02 * used / fraction), self._used + self._used // 8)
            size = max(used, min(guess, 4 * used))
            if self._used:
                # No reference to the buffer is ever handed out before `finish`.
                self._buffer.resize(size, refcheck=False)
            else:
                self._buffer = np.empty(size, dtype=self.dtype)
        self._buffer[self._used : used] = values
        self._used = used

    def astype(self, dtype: npt.DTypeLike) -> GrowingArray:
        """The same values in another type."""
        other = GrowingArray(dtype)
        other.extend(self._buffer[: self._used])
        return other

    def finish(self) -> npt.NDArray[Any]:
        """The array itself, with at most a 32nd of slack behind it. Nothing can be appended afterwards."""
        buffer, self._buffer = self._buffer, np.empty(0, dtype=self.dtype)
        if buffer.size - self._used > self._used // 32:
            buffer.resize(self._used, refcheck=False)
        return buffer[: self._used]

"""One block after another, and transformers of scikit-learn as blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods

from manyclass.features.base import Array, Block, StateOf, dense_rows, working_dtype

__all__ = ["Chain", "Transformer"]


class Chain(Block):
    """A preparation and then a block: principal components, then random features of them, say.

    The second block is fitted on what the first makes of a sample of rows: nothing is made of all rows at once.

    Parameters
    ----------
    first : FeatureBlock
        The preparation. The copies that `manyclass.features.fresh` makes after a fitted chain share its fitted first
        block, which is fitted once for all stages.
    second : FeatureBlock
    n_sample : int
        At most so many rows, drawn at random, are kept for fitting the second block.
    random_state : int, RandomState or None
        Of the sample, and of the two blocks where these have none of their own; `manyclass.features.fresh` gives a seed
        to the chain and to the second block.

    Attributes
    ----------
    first_, second_ : FeatureBlock
        Fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.features import PrincipalComponents, RandomFourier
    >>> X = np.random.default_rng(0).normal(size=(100, 20))
    >>> chain = Chain(PrincipalComponents(5), RandomFourier(30, random_state=0), random_state=0)
    >>> chain.fit_transform(X).shape
    (100, 30)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Block._parameter_constraints,
        **{key: [HasMethods("transform")] for key in ("first", "second")},
    }

    def __init__(self, first: Any, second: Any, *, n_sample: int = 10_000, random_state: Any = None) -> None:
        self.first = first
        self.second = second
        self.n_sample = n_sample
        self.random_state = random_state

    @property
    def n_features_out_(self) -> int:
        """How many features a row gets, of the second block."""
        return int(self.second_.n_features_out_)

    def _fit(self, X: Any, y: Any) -> None:
        shared = getattr(self, "_shared", None)
        self.first_ = self._seeded(self.first, 2).fit(X, y) if shared is None else shared
        n, size = X.shape[0], int(self.n_sample)
        rows = slice(None) if n <= size else np.sort(self._generator().choice(n, size, replace=False))
        targets = None if y is None else np.asarray(y)[rows]
        second = self._seeded(self.second, 1)
        previous = getattr(self, "_previous", None)
        if isinstance(second, Block) and previous is not None:
            second._after(previous)
        self.second_ = second.fit(self.first_.transform(X[rows]), targets)

    def _seeded(self, pattern: Any, stream: int) -> Any:
        """A copy of a block, with a seed of the chain's where it has none of its own."""
        block: Any = clone(pattern)
        if block.get_params(deep=False).get("random_state", 0) is None:
            block.set_params(random_state=int(self._generator(stream).integers(2**31 - 1)))
        return block

    def _transform(self, X: Any) -> Any:
        return self.second_.transform(self.first_.transform(X))

    def _reseed(self, seed: int) -> None:
        super()._reseed(seed)
        if "random_state" in self.second.get_params(deep=False):
            self.second.set_params(random_state=seed)

    def _resize(self, size: int) -> None:
        resize(self.second, size)

    def _after(self, previous: Any) -> None:
        if isinstance(previous, Chain):
            self._shared, self._previous = previous.first_, previous.second_

    def release(self) -> None:
        """Drop the random matrices of both blocks."""
        for name in ("first_", "second_"):
            block: Any = getattr(self, name, None)
            if hasattr(block, "release"):
                block.release()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # For the fit of the next stage alone.
        return {name: value for name, value in state.items() if name not in ("_shared", "_previous")}

    def to_state(self) -> StateOf:
        """The states of both blocks; the arrays of each bear its name."""
        from manyclass.features.states import to_state

        if not self.__sklearn_is_fitted__():
            return super().to_state()  # which says so
        parts = {"first": to_state(self.first_), "second": to_state(self.second_)}
        spec = {
            "block": "Chain",
            "parameters": {"n_sample": int(self.n_sample), "random_state": self.seed_},
            "n_features_in_": self.n_features_in_,
            **{name: part for name, (part, _) in parts.items()},
        }
        return spec, {f"{name}.{key}": value for name, (_, arrays) in parts.items() for key, value in arrays.items()}

    @classmethod
    def _from_state(cls, spec: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
        from manyclass.features.states import from_state

        parameters = spec.get("parameters")
        if not isinstance(parameters, dict) or set(parameters) != {"n_sample", "random_state"}:
            raise ValueError("the state of Chain is damaged: it has other parameters than n_sample and random_state")
        parts = {}
        for name in ("first", "second"):
            own = {key[len(name) + 1 :]: array for key, array in arrays.items() if key.startswith(name + ".")}
            parts[name] = from_state(spec.get(name, {}), own)
        chain = cls(clone(parts["first"]), clone(parts["second"]), **parameters)
        chain._check_parameters()
        if parts["first"].n_features_out_ != parts["second"].n_features_in_:
            raise ValueError(
                "the state of Chain is damaged: its second block takes other features than the first makes"
            )
        chain._begin()
        chain.seed_ = parameters["random_state"]
        chain.first_, chain.second_ = parts["first"], parts["second"]
        chain.n_features_in_ = chain.first_.n_features_in_
        return chain

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "second_")


class Transformer(Block):
    """A transformer of scikit-learn as a block, fitted anew for each block from a seed of its own.

    Parameters
    ----------
    estimator : transformer
        One that works row by row; cloned, given the seed where it has a ``random_state``, fitted on X alone.
    random_state : int, RandomState or None, default=None
        Seed of what is drawn; kept with the model.

    Attributes
    ----------
    estimator_ : transformer
        Fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.kernel_approximation import Nystroem
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> Transformer(Nystroem(n_components=6), random_state=0).fit_transform(X).shape
    (50, 6)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Block._parameter_constraints,
        "estimator": [HasMethods(["fit", "transform"])],
    }

    def __init__(self, estimator: Any, *, random_state: Any = None) -> None:
        self.estimator = estimator
        self.random_state = random_state

    @property
    def n_features_out_(self) -> int:
        """How many features a row gets."""
        return self._width

    def _fit(self, X: Any, y: Any) -> None:
        estimator = clone(self.estimator)
        if "random_state" in estimator.get_params():
            seed = int(check_random_state(self.seed_).randint(2**31 - 1))
            estimator.set_params(random_state=seed)
        self.estimator_ = estimator.fit(X)
        self._width = int(self.estimator_.transform(X[:1]).shape[1])

    def _transform(self, X: Any) -> Any:
        made = self.estimator_.transform(X)
        return dense_rows(made.tocsr() if sp.issparse(made) else made, working_dtype(X))

    def _resize(self, size: int) -> None:
        resize(self.estimator, size)

    def to_state(self) -> StateOf:
        """Refused: another library's object could be saved by pickle alone.

        Raises
        ------
        ValueError
        """
        raise ValueError(
            f"a Transformer of {type(self.estimator).__name__} cannot be saved: only the feature blocks of this "
            "package have a state without pickle; use one of them for a model that is to be saved"
        )


def resize(block: Any, size: int) -> None:
    """Make ``block`` give ``size`` features at most.

    Raises
    ------
    ValueError
        If it has no parameter for that.
    """
    if isinstance(block, Block):
        block._resize(size)
    elif "n_components" in block.get_params():
        block.set_params(n_components=size)
    else:
        raise ValueError(f"the number of features of {type(block).__name__} cannot be set: it has no n_components")

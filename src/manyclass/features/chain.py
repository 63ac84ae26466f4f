"""Chains of two blocks, and transformers of scikit-learn as blocks."""

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
    """Two blocks, one applied to the features of the other, such as principal components and random features of them.

    The second block is fitted to the features of a sample of rows, so that those of all rows are never in memory.

    Parameters
    ----------
    first : FeatureBlock
        The block applied to X. In a stagewise fit it is fitted once, for all stages.
    second : FeatureBlock
        The block applied to the features of the first.
    n_sample : int >= 1, default=10000
        The maximum number of rows, drawn at random, to which the second block is fitted.
    random_state : int, RandomState or None, default=None
        The seed of the sample, and of blocks whose ``random_state`` is None.

    Attributes
    ----------
    first_, second_ : FeatureBlock
        The fitted blocks.

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
        """The number of features of the second block."""
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
        """Return a copy of a block, with a seed from the chain if it has none."""
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
        """Free the memory of the random matrices of both blocks."""
        for name in ("first_", "second_"):
            block: Any = getattr(self, name, None)
            if hasattr(block, "release"):
                block.release()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # Used only by the fit of the next stage.
        return {name: value for name, value in state.items() if name not in ("_shared", "_previous")}

    def to_state(self) -> StateOf:
        """Return the states of both blocks, the names of arrays prefixed by ``first.`` and ``second.``."""
        from manyclass.features.states import to_state

        if not self.__sklearn_is_fitted__():
            return super().to_state()  # raises NotFittedError
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
            raise ValueError("the state of Chain is damaged: its parameters must be n_sample and random_state")
        parts = {}
        for name in ("first", "second"):
            own = {key[len(name) + 1 :]: array for key, array in arrays.items() if key.startswith(name + ".")}
            parts[name] = from_state(spec.get(name, {}), own)
        chain = cls(clone(parts["first"]), clone(parts["second"]), **parameters)
        chain._check_parameters()
        if parts["first"].n_features_out_ != parts["second"].n_features_in_:
            raise ValueError(
                "the state of Chain is damaged: its second block expects another number of features than the first has"
            )
        chain._begin()
        chain.seed_ = parameters["random_state"]
        chain.first_, chain.second_ = parts["first"], parts["second"]
        chain.n_features_in_ = chain.first_.n_features_in_
        return chain

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "second_")


class Transformer(Block):
    """A transformer of scikit-learn as a block; each stage fits a clone with another seed.

    Parameters
    ----------
    estimator : transformer
        A transformer of independent rows. A clone, with a seed if it has a ``random_state``, is fitted to X without y.
    random_state : int, RandomState or None, default=None
        The seed of the random numbers; stored with the model.

    Attributes
    ----------
    estimator_ : transformer
        The fitted clone.

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
        """The number of features."""
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
        """Raise a ValueError, because objects of other packages cannot be saved without pickle."""
        raise ValueError(
            f"a Transformer of {type(self.estimator).__name__} cannot be saved: only the feature blocks of this "
            "package have a state without pickle; use one of them for a model that is to be saved"
        )


def resize(block: Any, size: int) -> None:
    """Limit the number of features of a block to ``size``; a ValueError if it has no parameter for that."""
    if isinstance(block, Block):
        block._resize(size)
    elif "n_components" in block.get_params():
        block.set_params(n_components=size)
    else:
        what = f"{type(block).__name__} has no n_components, which limits the number of features"
        raise ValueError(f"{what}; expected a transformer that has it")

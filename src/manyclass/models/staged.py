"""`StagedModel`: scores summed over stages, each a linear model on a block of generated features, then calibrated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from manyclass import features
from manyclass._version import __version__
from manyclass.features.base import projection
from manyclass.features.images import image_shape, pixel_rows
from manyclass.kernels.rows import read_only
from manyclass.models.base import Array, Model
from manyclass.models.candidates import Candidates
from manyclass.models.elsewhere import of_any_library
from manyclass.models.normalizer import Normalizer
from manyclass.models.parts import check_weights, plain
from manyclass.objective.links.calibrated import Calibration
from manyclass.runtime.threads import ranges, resolve_n_jobs, run

if TYPE_CHECKING:
    from manyclass.features import FeatureBlock

from manyclass.kernels.rows import check_sparse

__all__ = ["Stage", "StagedModel"]

#: Number of feature values computed at a time. Fixed, because the rounding of BLAS depends on the shape of arrays.
_PIECE = 1 << 21
#: Numbers of rows and of scores that are in memory at a time when only the best classes are needed.
_ROWS, _SCORES = 1 << 15, 1 << 24


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of a `StagedModel`: adds ``block(x) @ weights + intercept`` to the scores, then calibrates them.

    Parameters
    ----------
    block : FeatureBlock or None
        Computes the p features of the stage from a row; None uses the row itself.
    weights : ndarray of shape (p, n_outputs)
        Weights of the stage.
    intercept : ndarray of shape (n_outputs,)
        Intercepts of the stage.
    calibration : Calibration, optional
        Applied to the sum; by default none.

    Raises
    ------
    ValueError
        If weights or intercept are invalid, or their shapes do not match.
    """

    block: FeatureBlock | None
    weights: Array
    intercept: Array
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        check_weights(self.weights, self.intercept)
        object.__setattr__(self, "intercept", np.ascontiguousarray(self.intercept))

    def __call__(self, scores: Array, X: Any) -> Array:
        """The scores after the stage, from the scores before it and the rows; may overwrite ``scores``."""
        project = projection(self.block, self.weights)
        if project is not None:
            scores += project(X)
        else:
            block: Any = X if self.block is None else self.block.transform(X)
            scores += block @ self.weights
        scores += self.intercept
        return scores if self.calibration is None else self.calibration(scores)


@dataclass(frozen=True, eq=False)
class StagedModel(Model):
    """A model whose scores are the sum of several stages, or the mean of several such sums (members).

    Parameters
    ----------
    members : tuple of tuples of Stage
        The stages of each member; most models have one member.
    n_features : int
        Number of features of a row.
    classes, task, parameters, record, feature_names, vectorizer, library_version, temperature
        As in `LinearModel`.
    link : {"identity", "softmax", "sigmoid"}, default="identity"
        The function from scores to probabilities, unless the last calibrations make the scores probabilities.
    prepare : FeatureBlock, optional
        A transformation, such as principal components, of the rows before the blocks of all stages.

    Raises
    ------
    ValueError
        If an argument is invalid or inconsistent with the others.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass import StagedModel
    >>> from manyclass.models.staged import Stage
    >>> one = Stage(None, np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2))
    >>> two = Stage(None, np.array([[0.0, 0.0], [-3.0, 0.0]]), np.zeros(2))
    >>> model = StagedModel(((one, two),), 2, classes=np.array(["a", "b"]), task="multiclass")
    >>> model.scores(np.array([[2.0, 1.0]]))
    array([[-1.,  1.]])
    """

    members: tuple[tuple[Stage, ...], ...]
    width: int
    classes: Array | None
    task: str
    link: str = "identity"
    prepare: FeatureBlock | None = field(default=None, repr=False)
    parameters: dict[str, Any] = field(default_factory=dict, repr=False)
    record: dict[str, Any] = field(default_factory=dict, repr=False)
    feature_names: Array | None = field(default=None, repr=False)
    vectorizer: tuple[dict[str, Any], dict[str, Array]] | None = field(default=None, repr=False)
    library_version: str = __version__
    temperature: float = 1.0
    kind = "staged"

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(tuple(member) for member in self.members))
        stages = self.stages
        if not stages or not all(self.members):
            raise ValueError("members must be non-empty tuples of stages")
        wanted = stages[0].weights.dtype, stages[0].weights.shape[1]
        for stage in stages:
            if (stage.weights.dtype, stage.weights.shape[1]) != wanted:
                raise ValueError(
                    f"stages must have the same number of outputs and dtype, got {wanted[1]} of {wanted[0]} and "
                    f"{stage.weights.shape[1]} of {stage.weights.dtype}"
                )
        for block in [stage.block for stage in stages] if self.prepare is None else [self.prepare]:
            width = getattr(block, "n_features_in_", self.width)
            if width != self.width:
                raise ValueError(f"{type(block).__name__} takes {width} features, expected {self.width}")
        self.check()

    # --- properties -------------------------------------------------------------------------------------------------

    @property
    def stages(self) -> list[Stage]:
        """The stages of all members, one after the other."""
        return [stage for member in self.members for stage in member]

    @property
    def n_features(self) -> int:
        return int(self.width)

    @property
    def n_outputs(self) -> int:
        return int(self.members[0][0].weights.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.members[0][0].weights.dtype)

    @property
    def threshold(self) -> float:  # type: ignore[override]
        """Decision threshold of a multilabel model: 1/2 if its scores are probabilities, else 0."""
        return 0.5 if self._domain == "box" else 0.0

    @property
    def _domain(self) -> str | None:
        """The domain of the last calibrations if all members have the same: scores are then probabilities."""
        last = {None if member[-1].calibration is None else member[-1].calibration.domain for member in self.members}
        return last.pop() if len(last) == 1 else None

    @property
    def gives_probabilities(self) -> bool:
        """Whether the model has a link, or calibrated scores, which are probabilities already."""
        return self._domain is not None or super().gives_probabilities

    @property
    def nbytes(self) -> int:
        """Size of weights and intercepts in bytes."""
        return sum(stage.weights.nbytes + stage.intercept.nbytes for stage in self.stages)

    def summary(self) -> dict[str, Any]:
        """A description of the model as a dict for JSON. Reads all weights."""
        blocks = [None if stage.block is None else type(stage.block).__name__ for stage in self.stages]
        return self._described(
            "staged",
            sum(stage.weights.size for stage in self.stages),
            sum(int(np.count_nonzero(stage.weights)) for stage in self.stages),
            any(bool(np.any(stage.intercept)) for stage in self.stages),
            n_members=len(self.members),
            n_stages=len(self.stages),
            n_calibrated=sum(stage.calibration is not None for stage in self.stages),
            n_block_features=sum(len(stage.weights) for stage in self.stages),
            blocks=sorted({name for name in blocks if name}),
        )

    def rows(self, X: Any) -> Any:
        """Images as rows of pixels, where the model is one of images; other input as for every model."""
        return pixel_rows(super().rows(X), image_shape(self.prepare, self.members[0][0].block))

    # --- prediction -------------------------------------------------------------------------------------------------

    @of_any_library
    def scores(self, X: Any, n_jobs: int | None = None) -> Array:
        """Scores of the rows, see `LinearModel.scores`.

        The features of a block are computed for some rows at a time.
        """
        self._check(X)
        return self._scores(X, resolve_n_jobs(n_jobs))

    def _scores(self, X: Any, n_threads: int) -> Array:
        total: Array | None = None
        for member in self.members:
            scores = np.zeros((X.shape[0], self.n_outputs), self.dtype)
            for stage in member:
                self._advance(stage, scores, X, n_threads)
            if not np.isfinite(scores).all():
                raise ValueError(
                    f"X has values up to {float(abs(X).max()):.1e}, which give scores beyond the range of "
                    f"{self.dtype.name}; expected rows of the scale of those of the fit: scale the features, or write "
                    "the model again if it is damaged"
                )
            total = scores if total is None else np.add(total, scores, out=total)
        found: Array = np.zeros(0) if total is None else total
        if len(self.members) > 1:
            found /= len(self.members)
        return found

    @of_any_library
    def probabilities(self, X: Any, n_jobs: int | None = None) -> Array:
        """Probabilities of the classes, see `Model.probabilities`; calibrated scores are probabilities already."""
        return super().probabilities(X, n_jobs) if self._domain is None else self.scores(X, n_jobs)

    def _calibrated_by(
        self,
        sources: Iterable[tuple[Model, Any]],
        y: Any,
        sample_weight: Any = None,
        n_jobs: int | None = None,
        *,
        bias: bool = False,
    ) -> StagedModel:
        """See `Model._calibrated_by`; not for a model whose scores are probabilities."""
        if self._domain is not None:
            raise ValueError(
                "the scores of this model are probabilities already, projections that its fit has calibrated: use them "
                "(predict_proba, or probabilities of a model) as they are"
            )
        return super()._calibrated_by(sources, y, sample_weight, n_jobs, bias=bias)

    def _advance(self, stage: Stage, scores: Array, X: Any, n_threads: int) -> None:
        """Update the scores of all rows by one stage."""

        def task(begin: int, end: int) -> None:
            part = X[begin:end]
            part = part.astype(self.dtype, copy=False) if part.dtype != self.dtype else part
            if self.prepare is not None:
                part = self.prepare.transform(part)
            with np.errstate(over="ignore", invalid="ignore"):  # `_scores` raises an error
                scores[begin:end] = stage(scores[begin:end].copy(), part)

        pieces = ranges(X.shape[0], max(1, _PIECE // max(len(stage.weights), 1)))
        # The first piece on one thread: the block then computes what all pieces share.
        run(task, pieces[:1], 1)
        run(task, pieces[1:], n_threads)
        for block in (stage.block, self.prepare):
            release = getattr(block, "release", None)  # a scikit-learn transformer has none
            if release is not None:
                release()

    def _check(self, X: Any) -> None:
        """Raise a ValueError for rows that no block can take."""
        if sp.issparse(X):
            if X.format != "csr":
                raise ValueError(f"X must be an array or a CSR matrix, got a {X.format} matrix: pass X.tocsr()")
            check_sparse(X)
        elif not isinstance(X, np.ndarray):
            raise ValueError(f"X must be an array or a CSR matrix, got {type(X).__name__}: pass np.asarray(X)")
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(
                f"X must have shape (n, {self.n_features}), with the features of the fit in their order, got {X.shape}"
            )
        if X.dtype.kind not in "biuf":
            raise ValueError(f"X must hold real numbers, got {X.dtype}: pass X.astype(np.float64)")
        values = X.data if sp.issparse(X) else X
        for begin, end in ranges(len(values), 1 << 16):
            if not np.isfinite(values[begin:end]).all():
                raise ValueError("X has NaN or infinity: replace such values or remove their rows")

    @of_any_library
    def topk_probabilities(self, X: Any, k: int, n_jobs: int | None = None) -> tuple[Array, Array]:
        """See `Model.topk_probabilities`; calibrated scores are probabilities already."""
        return super().topk_probabilities(X, k, n_jobs) if self._domain is None else self.topk(X, k, n_jobs)

    def _by_pieces(self, X: Any, n_jobs: int | None, task: Callable[[int, int, Array], Any]) -> list[Any]:
        """Call ``task(begin, end, scores)`` for some rows at a time."""
        self._check(X)
        n_threads = resolve_n_jobs(n_jobs)
        pieces = ranges(X.shape[0], max(1, min(_ROWS, _SCORES // self.n_outputs))) or [(0, 0)]
        return [task(begin, end, self._scores(X[begin:end], n_threads)) for begin, end in pieces]

    def _best(
        self,
        X: Any,
        k: int,
        n_jobs: int | None,
        candidates: Candidates | None = None,
        normalizer: Normalizer | None = None,
    ) -> tuple[Array, Array]:
        def best(begin: int, end: int, scores: Array) -> tuple[Array, Array]:
            if normalizer is not None and end > begin:
                normalizer.add(begin, end, scores)
            if candidates is not None:
                scores = np.where(candidates.mask(begin, end, self.n_outputs), scores, np.nan)
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            return order, np.take_along_axis(scores, order, axis=1)

        found = self._by_pieces(X, n_jobs, best)
        return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])

    def _positive(self, X: Any, n_jobs: int | None) -> sp.csr_matrix[Any]:
        found = self._by_pieces(
            X, n_jobs, lambda _, __, scores: sp.csr_matrix((scores > self.threshold).astype(np.int8))
        )
        return sp.csr_matrix(sp.vstack(found, format="csr"))

    def sparsify(self, threshold: float = 0.0) -> StagedModel:
        """Not supported for staged models.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError("sparsify is for linear models, and this is a staged model, whose weights are dense")

    # --- file -------------------------------------------------------------------------------------------------------

    def parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `Model.parts`.

        Raises
        ------
        ValueError
            If a block or a calibration contains a function of the user, which files cannot contain.
        """
        arrays: dict[str, Any] = {}

        def kept(prefix: str, state: tuple[dict[str, Any], dict[str, Array]]) -> dict[str, Any]:
            arrays.update({f"stage.{prefix}.{name}": array for name, array in state[1].items()})
            return {"described": plain(prefix, state[0]), "arrays": sorted(state[1])}

        members = []
        for m, member in enumerate(self.members):
            told = []
            for s, stage in enumerate(member):
                arrays[f"stage.{m}.{s}.weights"] = stage.weights
                arrays[f"stage.{m}.{s}.intercept"] = stage.intercept
                block = None if stage.block is None else kept(f"{m}.{s}.block", features.to_state(stage.block))
                link = stage.calibration
                calibration = None if link is None else kept(f"{m}.{s}.calibration", link.to_state())
                told.append({"block": block, "calibration": calibration})
            members.append(told)
        prepare = None if self.prepare is None else kept("prepare", features.to_state(self.prepare))
        return {"members": members, "prepare": prepare}, arrays

    @classmethod
    def from_parts(
        cls: type[StagedModel], common: dict[str, Any], described: dict[str, Any], arrays: dict[str, Any]
    ) -> StagedModel:
        def state(prefix: str, kept: Any) -> tuple[dict[str, Any], dict[str, Array]] | None:
            if kept is None:
                return None
            return kept["described"], {name: arrays[f"stage.{prefix}.{name}"] for name in kept["arrays"]}

        def block(prefix: str, kept: Any) -> FeatureBlock | None:
            found = state(prefix, kept)
            return None if found is None else features.from_state(*found)

        def calibration(prefix: str, kept: Any) -> Calibration | None:
            found = state(prefix, kept)
            return None if found is None else Calibration.from_state(*found)

        try:
            members = tuple(
                tuple(
                    Stage(
                        block(f"{m}.{s}.block", told["block"]),
                        arrays[f"stage.{m}.{s}.weights"],
                        read_only(arrays[f"stage.{m}.{s}.intercept"]),
                        calibration(f"{m}.{s}.calibration", told["calibration"]),
                    )
                    for s, told in enumerate(member)
                )
                for m, member in enumerate(described["members"])
            )
            prepare = block("prepare", described["prepare"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"the state of its stages must contain {error}") from error
        return cls(members, described["shape"][0], prepare=prepare, **common)

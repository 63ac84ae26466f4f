"""`StagewiseClassifier`: least squares on many generated features, one block at a time."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.estimators.base import check_sample_weight
from manyclass.estimators.elsewhere import ClassScore
from manyclass.estimators.images import image_settings
from manyclass.estimators.labels import coded
from manyclass.estimators.predicting import PredictingMixin
from manyclass.estimators.stagewise_base import StagewiseEstimator, require_same
from manyclass.estimators.streamed import class_weighted, error_rate
from manyclass.estimators.watched import Watch
from manyclass.objective.history import FitProgress
from manyclass.objective.links.calibrated import check_basis
from manyclass.solvers.least_squares.generalized import named_link
from manyclass.solvers.least_squares.stagewise import Update, appended, calibrated, linear, link_loss, logistic

__all__ = ["StagewiseClassifier"]


class StagewiseClassifier(ClassScore, StagewiseEstimator, PredictingMixin):
    """Classifier on blocks of generated features, each fitted by least squares to the residuals of the earlier blocks.

    For each block: compute its features (random, or a subset of those of X), fit their weights, update the scores, and
    discard the features. A block of p features costs n p^2 + p^3 / 3 operations. Memory: a chunk of rows times p, p^2,
    and the scores; features are recomputed from a seed when they are needed, and never stored for all rows.

    Parameters
    ----------
    features : str or FeatureBlock, default="auto"
        The kind of features: "fourier", "logits", "nystrom", "polynomial", "subset" or "pca", optionally with their
        number in a block ("fourier:1024"), a block of `manyclass.features`, or a scikit-learn transformer that treats
        each row independently. Each block is a copy with another seed; a `FeatureSubset` continues with the next
        features. "auto": for dense X `Nystrom` features with settings by the rule in the notes, for sparse X
        "fourier".
    prepare : str or FeatureBlock, optional
        A transformation that is applied once, before all blocks, and whose result is kept for all rows, such as
        "pca:50"; same format as ``features``. None: with ``features="auto"`` "pca:100" for dense X of 501 to 5000
        features, else no transformation.
    block_size : int, optional
        Number of features of a block, >= 1. None: the number of ``features``; with ``features="auto"`` and dense X
        2048.
    n_blocks : int, optional
        Number of blocks of a pass, >= 1. None: all features of X for a `FeatureSubset`, else 10 blocks; with
        ``features="auto"`` and dense X fewer if these have more than two features for every three rows.
    passes : int, default=1
        Number of passes over the blocks, >= 1. From the second pass on, a block is fitted to the residuals of all other
        blocks; with additive updates its new weights are added to the old ones, so that the passes decrease the
        joint objective of all blocks. A `FeatureSubset` ordered by gradient is ordered again.
    update : {"auto", "linear", "appended", "calibrated", "logistic"}, default="auto"
        ``linear``: ridge regression of the residuals y - yhat. ``calibrated``: the same, then predictions are refitted
        on functions of themselves and projected on the simplex (the hypercube for multilabel y). ``appended``: ridge
        regression on the block and the predictions so far as K more features, without projection: the paper's linear
        calibration (section 3.1), while "calibrated" is a round of its algorithm 2. ``logistic``: a few
        steps of generalized least squares for the softmax link (sigmoid for two classes and multilabel y), with the
        current scores as offsets. ``auto``: calibrated with ``features="auto"`` and dense X, else linear.
    basis : {"linear", "quadratic", "cubic"} or callable, default="linear"
        Functions for the calibrated update; see `CalibratedLeastSquaresClassifier`. The paper's stagewise experiments
        use "linear".
    inner_steps : int, default=5
        Maximum number of steps of a logistic update, >= 1; each is a pass over the data.
    alpha : float or None, default=None
        Ridge penalty of each block relative to the mean loss, >= 0. None: 1 / n_samples (1 / the sum of the sample
        weights); with ``features="auto"`` and dense X 0.1, 1 or 10 times that.
    n_models : int, default=1
        Number of models with different random features, >= 1, whose scores are averaged.
    fit_intercept : bool, default=True
        Whether to fit an unpenalized intercept in each block.
    early_stopping : bool, default=False
        Whether to hold out validation rows, unless ``fit`` is given X_val, and keep the number of
        blocks with the lowest error on them.
    validation_fraction : float, default=0.1
        Fraction of the rows that is held out with ``early_stopping``, in (0, 1).
    patience : int, default=10
        With ``early_stopping``, a model stops after this number of blocks without a lower validation error, >= 1.
    class_weight : dict or "balanced", optional
        Weights of the classes, as in scikit-learn.
    random_state : int, RandomState or None, default=None
        Seed of all features and of the validation split.
    n_jobs : int, optional
        Number of threads of kernels and predictions: None means 1, -1 all cores. Does not change the result. Matrix
        products use the threads of the BLAS.
    warm_start : bool, default=False
        Whether to add blocks to the stages of the previous fit.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        Type of features, products and weights; None uses that of X. Linear systems are solved in float64.
    verbose : int, default=0
        1 shows a line for each block on standard error.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    alpha_ : float
        The ridge penalty used.
    features_ : FeatureBlock
        The block, not fitted, of which each block is a copy.
    n_stages_ : list of int
        Number of stages of each model.
    stage_records_ : list of StageRecord
        Loss and validation error after each block.
    outcome_ : {"complete", "stopped early", "stopped", "interrupted"}
        Why the fit ended: all blocks were fitted, ``patience`` ended one of the models, the callback, or Ctrl-C,
        which keeps the best model so far.
    model_ : StagedModel
        The fitted model.
    n_features_in_ : int
        Number of features of X.

    Raises
    ------
    ValueError
        If a parameter is out of range, y has fewer than two classes, or the input has NaN or infinity.
    MemoryError
        If a block or the scores would need more memory than is available; raised before anything is allocated.

    See Also
    --------
    StagewiseRegressor : The same for regression.
    StagewiseClassifier.for_images : Settings for images.
    CalibratedLeastSquaresClassifier : Calibrated least squares on one set of features.

    Notes
    -----
    ``features="auto"`` for dense X: blocks of Nystrom features, with centers drawn by the squared residuals; two
    features for every three rows, but at most 10 blocks. Bandwidth (1/2, 1/4, ... or 1, 2, ... times the median squared
    distance) and alpha (0.1, 1 or 10 / n_samples) are those with the lowest squared error on held-out rows: one block
    of 1024 features is fitted to 80 % of at most 10 000 rows for each bandwidth, as long as the error on the others
    falls. For fewer than 50 rows the bandwidth is 1 and alpha 1 / n_samples. No rows are held out from the fit itself:
    a fit to all rows was more accurate than one with early stopping. Standardize columns in different units first.

    References
    ----------
    Agarwal, Kakade, Karampatziakis, Song and Valiant, "Least squares revisited: scalable approaches for multi-class
    prediction", ICML 2014, algorithm 3.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import StagewiseClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = StagewiseClassifier(block_size=100, n_blocks=5, update="calibrated", random_state=0).fit(X / 16, y)
    >>> model.n_stages_, model.score(X / 16, y) > 0.97
    ([5], True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StagewiseEstimator._parameter_constraints,
        "update": [StrOptions({"auto", "linear", "appended", "calibrated", "logistic"})],
        "inner_steps": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        features: Any = "auto",
        *,
        prepare: Any = None,
        block_size: int | None = None,
        n_blocks: int | None = None,
        passes: int = 1,
        update: str = "auto",
        basis: Any = "linear",
        inner_steps: int = 5,
        alpha: float | None = None,
        n_models: int = 1,
        fit_intercept: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            features,
            prepare=prepare,
            block_size=block_size,
            n_blocks=n_blocks,
            passes=passes,
            alpha=alpha,
            n_models=n_models,
            fit_intercept=fit_intercept,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            random_state=random_state,
            n_jobs=n_jobs,
            warm_start=warm_start,
            dtype=dtype,
            verbose=verbose,
        )
        self.update = update
        self.basis = basis
        self.inner_steps = inner_steps
        self.class_weight = class_weight

    @classmethod
    def for_images(cls, shape: Any, **parameters: Any) -> StagewiseClassifier:
        """The estimator with settings for images: calibrated blocks of Nystrom features of k-means patches.

        Rows with one channel get 100 filters of 6 x 6 pixels (a third of the side of smaller images), averaged over a
        4 x 4 grid, and 300 principal components of these, then four blocks of 2048 features. Rows with several channels
        get 200 filters and their mirror images of about 9 x 9 pixels over a 3 x 3 grid, 1000 components and eight
        blocks of 4000 features; the same without mirror images where the places of the filters have none. These are
        the settings that were best on held-out training rows of MNIST and CIFAR-10 (``ls_mnist_features`` and
        ``ls_cifar`` in the benchmarks).

        Parameters
        ----------
        shape : tuple of 3 ints, or images of shape (n, height, width) or (n, height, width, channels)
            (height, width, channels) of an image, or images that have it. `fit`, `predict` and `score` take images of
            this shape, and rows of their pixels in this order, with the channels last. Integers, such as bytes, become
            float32.
        **parameters : Any
            Parameters of the estimator that replace those of the settings: ``n_blocks=2``, ``n_jobs=-1``.

        Returns
        -------
        StagewiseClassifier
            The estimator, not fitted.

        Raises
        ------
        ValueError
            If ``shape`` is neither three numbers of at least 1 nor images.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from manyclass import StagewiseClassifier
        >>> images, y = load_digits().images, load_digits().target  # (1797, 8, 8)
        >>> model = StagewiseClassifier.for_images(images, block_size=200, n_blocks=2, random_state=0)
        >>> model.fit(images[:1200], y[:1200]).score(images[1200:], y[1200:]) > 0.95
        True
        """
        return cls(**{**image_settings(shape), **parameters})

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        callback: Callable[[FitProgress], Any] | None = None,
    ) -> StagewiseClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features), or images (see `for_images`)
            Rows, finite. Read in chunks: may be memory-mapped, or an array of another library (PyTorch, CuPy, any that
            follows the array API), which then computes the matrix products; random features are drawn by NumPy.
        y : array of shape (n_samples,), or indicator (dense or sparse) of shape (n_samples, n_classes)
            Labels of any sortable type, or 0/1 indicators.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows, >= 0; an integer weight is equivalent to that many copies of the row.
        X_val, y_val : as X and y, optional
            Held-out rows, whose score after each block is in ``stage_records_``. With ``early_stopping`` they end the
            fit, and no row of X is held out.
        callback : callable, optional
            Called after each block, see `LinearClassifier.fit`: ``objective`` is the loss, ``validation`` the
            accuracy (of label sets: the fraction of right labels). ``weights()`` returns the stages so far, as
            ``model_.members`` has them.

        Returns
        -------
        StagewiseClassifier
            The fitted estimator.
        """
        self._check_parameters()
        watch = Watch(X_val, y_val, callback, X, y, sample_weight)
        classes = getattr(self, "classes_", None)
        width = getattr(self, "n_features_in_", None)
        X, y = self._check_fit_input(X, y)
        weights = check_sample_weight(sample_weight, X)
        labels, task = self._read_targets(y)
        weights = class_weighted(self.class_weight, self.classes_, labels, weights)
        if self.warm_start and self._stages:
            require_same(classes, self.classes_, width, self.n_features_in_)
        self._seeds = self._seeded()
        dtype = self._working_dtype(X)
        kind = self.update
        if kind == "auto":
            kind = "calibrated" if self._is_dense_default(X) else "linear"
        if task == "binary" and kind == "calibrated":
            task = "multiclass"  # one column for each of two classes: predictions are on the simplex
        K = 1 if task == "binary" else len(self.classes_)
        link = "identity"
        if kind == "logistic":
            link = "softmax" if task == "multiclass" else "sigmoid"
        signs = kind in ("linear", "appended") and task != "multiclass"
        domain = "box" if task == "multilabel" else "simplex"
        update: Update
        if kind == "linear":
            update = linear
        elif kind == "appended":
            update = appended
        elif kind == "calibrated":
            update = calibrated(self.basis, domain)
        else:
            update = logistic(*named_link(link), int(self.inner_steps), 1e-4)
        threshold = 0.5 if (kind, task) == ("calibrated", "multilabel") else 0.0
        self._run_members(
            watch,
            dtype,
            {"task": task, "link": link, "classes": self.classes_},
            X,
            coded(labels, K, dtype, signs=signs),
            weights,
            update=update,
            additive=kind in ("linear", "logistic"),
            loss=link_loss(link),
            judge=lambda scores, truth, own: error_rate(scores, truth, task, own, threshold),
            labels=labels,
            given=self._held_out_rows(X_val, y_val, task, len(self.classes_)) if watch.judges else None,
        )
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_basis(self.basis)

    def _gives_probabilities(self) -> bool:
        fitted = hasattr(self, "model_")
        return super()._gives_probabilities() if fitted else self.update in ("logistic", "calibrated")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

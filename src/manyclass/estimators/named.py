"""The base class of all estimators: errors for unknown parameters, and `save`."""

from __future__ import annotations

import os
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from manyclass.optimize.checkpoint import remove as remove_checkpoint
from manyclass.runtime.names import did_you_mean

__all__ = ["Named"]

#: Names of parameters in other libraries -> what to use here, for error messages.
_OTHER_NAMES = {
    "C": "alpha: C is 1 / (alpha * n_samples), and alpha=None is C=1",
    "penalty": "l1_ratio: 0 is l2, 1 is l1, between them is elastic net",
    "multi_class": "loss: 'multinomial' is softmax regression, 'log_loss' one-vs-rest",
    "gamma": "an object for the loss, such as loss=CrammerSinger(gamma=0.1)",
    "epsilon": "an object for the loss: loss=Huber(epsilon=1.35)",
    "option": "an object for the solver: solver=SDCA(option='II')",
    "sampling": "an object for the solver: solver=SDCA(sampling='importance')",
    "search": "an object for the solver, such as solver=ActiveSetSDCA(search='graph')",
    "rank": "an object for the solver: solver=BoundMajorization(rank=8)",
    "n_workers": "an object for the solver: solver=DSMLR(n_workers=2)",
    "regularization": "alpha and l1_ratio",
    "lam": "alpha",
    "lambda": "alpha",
    "lambda_": "alpha; glmnet's alpha is l1_ratio",
    "lambdas": "alphas; glmnet's alpha is l1_ratio",
    "nlambda": "n_alphas",
    "nfolds": "cv",
    "family": "loss: 'squared' is gaussian, 'log_loss' binomial, 'multinomial' multinomial",
    "penalty_factor": "nothing: a column that is divided by f has f times the l1 penalty",
    "weights": "fit(X, y, sample_weight=...)",
    "reg": "alpha",
    "learning_rate": "nothing: no step size needs to be chosen (solver=SGD(eta0=...) takes one)",
    "epochs": "max_iter",
    "n_epochs": "max_iter",
    "seed": "random_state",
    "n_threads": "n_jobs",
    "num_threads": "n_jobs",
    "tolerance": "tol",
    "intercept": "fit_intercept",
    "dual": "solver: 'auto' chooses between dual and primal solvers",
    "intercept_scaling": "nothing: the intercept is not penalized",
    "early_stopping": "tol, the duality gap at which a fit stops, or alpha='auto'",
    "validation_fraction": "early_stopping=True, for a tenth of the rows, or fit(X, y, X_val=..., y_val=...)",
    "n_iter_no_change": "early_stopping=10, for a number of iterations",
    "patience": "early_stopping=10, for a number of iterations",
}


class Named(BaseEstimator):  # type: ignore[misc]
    """Base class of estimators whose error for an unknown parameter names the equivalent one."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # inspect.signature of Python 3.10 takes an inherited __new__ before an inherited __init__.
        if "__init__" not in vars(cls) and cls.__init__ is not object.__init__:
            cls.__init__ = cls.__init__  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        known = cls._get_param_names()
        for name in kwargs:
            if name not in known:
                meant = _OTHER_NAMES.get(name)
                hint = did_you_mean(name, known) if meant is None else f": here it is {meant}"
                end = "" if hint.endswith("?") else "."
                raise TypeError(f"{cls.__name__} has no parameter {name!r}{hint}{end} It has {', '.join(known)}")
        return super().__new__(cls)

    def set_params(self, **params: Any) -> Any:
        """Set parameters of this estimator, or of its objects by names such as ``loss__gamma`` and ``solver__option``.

        Parameters
        ----------
        **params : Any
            Values by name.

        Returns
        -------
        object
            This estimator.

        Raises
        ------
        ValueError
            If a name is unknown, or belongs to a loss or a solver that was passed as a string.
        """
        for key in params:
            name, nested, _ = key.partition("__")
            given = params.get(name, getattr(self, name, None))
            if nested and isinstance(given, str):
                raise ValueError(
                    f"{key} is a parameter of an object, and {name} is the string {given!r}: pass {name} as an object "
                    "first, as in LinearClassifier(CrammerSinger(gamma=0), solver=SDCA(option='II'))"
                )
        return super().set_params(**params)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file, atomically; `manyclass.load` reads it.

        Then removes the checkpoint of the fit (``fit(checkpoint=)``) if the fit is finished.

        Parameters
        ----------
        path : path
            The file, or the folder of a model in blocks of classes.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        OSError
            If the file cannot be written.
        """
        check_is_fitted(self)
        self.model_.save(path)
        kept = self.__dict__.pop("_checkpoint", None)
        if kept is not None:
            remove_checkpoint(kept)

    @property
    def report_(self) -> str:
        """One HTML page about the fitted model, as `manyclass.write_report` writes it without labeled rows.

        It is made anew at each access.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        """
        check_is_fitted(self)
        from manyclass.models.page import report_page  # no fit needs it

        return report_page(self.model_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

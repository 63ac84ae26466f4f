"""Recommends a loss, a solver and a penalty for given data, with reasons and estimates of memory and time.

The rules are those of the documentation page "Which one do I take?". Times are estimated from operation counts and
rates measured on one core, to a factor of about five.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Advice", "Facts", "advise", "seconds_of"]

#: Multiply-adds per second: of stochastic steps on sparse and on dense rows, and of exact passes over all classes.
_SPARSE, _DENSE, _PASS = 2e9, 3e9, 1.5e9
#: Approximate number of epochs of a fit, and of classes in the active set of a sample.
_EPOCHS, _RIVALS = 15, 16
#: Number of classes from which the active-set SVM is recommended, and from which MEMOIR is even if memory suffices.
_MANY, _VERY_MANY = 1000, 50_000
_ON_DISK = "multinomial with solver=OutOfCore(path) on a row store: neither rows nor weights need fit in memory"
#: Number of features up to which `StagewiseClassifier` is suggested for dense rows with few classes.
_PIXELS = 5000


@dataclass(frozen=True)
class Facts:
    """The properties of a data set that `advise` needs.

    Attributes
    ----------
    n_samples, n_features, n_stored : int
        Number of rows, of features, and of stored (non-zero) values.
    n_outputs : int
        Number of classes, of labels (multilabel), or of targets (regression).
    targets : {"classes", "labels", "numbers"}
        Multiclass, multilabel or regression.
    sparse : bool
        Whether the rows are sparse.
    available : int, default=None
        Available memory in bytes; None if it is not known.
    itemsize : int, default=4
        Bytes per number.
    """

    n_samples: int
    n_features: int
    n_stored: int
    n_outputs: int
    targets: str
    sparse: bool
    available: int | None = None
    itemsize: int = 4


@dataclass(frozen=True)
class Advice:
    """The recommendation for a data set.

    Attributes
    ----------
    estimator, loss, solver, alpha : str
        As written on the command line.
    nbytes : int
        Approximate memory of the fit in bytes, without the data.
    seconds : float
        Approximate time of the fit on one core, correct to a factor of about five.
    reasons : dict of str
        The reason for each choice.
    alternatives : tuple of str
        Other choices that may be worth a try.
    """

    estimator: str
    loss: str
    solver: str
    alpha: str
    nbytes: int
    seconds: float
    reasons: dict[str, str]
    alternatives: tuple[str, ...] = ()

    @property
    def call(self) -> str:
        """The Python expression that creates the estimator."""
        if self.estimator == "LinearRegressor":
            return f'LinearRegressor(alpha="{self.alpha}")'
        loss = "CrammerSinger(gamma=0)" if self.solver == "memoir" else f'"{self.loss}"'
        solver = "" if self.solver == "auto" else f', solver="{self.solver}"'
        return f'LinearClassifier({loss}, alpha="{self.alpha}"{solver})'

    @property
    def options(self) -> str:
        """The options of ``manyclass fit``."""
        extra = " --set loss.gamma=0" if self.solver == "memoir" else ""
        solver = "" if self.solver == "auto" else f" --solver {self.solver}"
        return f"--loss {self.loss}{extra} --alpha {self.alpha}{solver}"


def advise(facts: Facts) -> Advice:
    """Recommend a loss, a solver and a penalty for data with these properties.

    Parameters
    ----------
    facts : Facts
        The properties of the data.

    Returns
    -------
    Advice
        The recommendation.

    Examples
    --------
    >>> few = advise(Facts(11_314, 130_107, 1_787_565, 20, "classes", True))
    >>> few.loss, few.solver, few.alpha
    ('multinomial', 'auto', 'auto')
    >>> many = advise(Facts(119_314, 40_000, 1_500_000, 11_774, "classes", True))
    >>> many.loss, many.options
    ('crammer_singer', '--loss crammer_singer --alpha auto')
    """
    K, n, d = facts.n_outputs, facts.n_samples, facts.n_features
    rows = "sparse" if facts.sparse else "dense"
    reasons = {"alpha": "the best value depends on the data: 'auto' compares several on held-out rows"}
    if facts.targets == "numbers":
        reasons["loss"] = "regression; use loss='huber' if the targets have outliers"
        reasons["solver"] = "chosen by the conditioning of the problem"
        nbytes = 2 * (n + d) * K * facts.itemsize
        return Advice("LinearRegressor", "squared", "auto", "auto", nbytes, _all_outputs(facts), reasons)
    if facts.targets == "labels":
        reasons["loss"] = f"multilabel with {K} labels: one problem for each label, with probabilities"
        reasons["solver"] = "ranges of labels are fitted in parallel; n_jobs=-1 uses all cores"
        nbytes = d * K * facts.itemsize + 64 * (n + d) * facts.itemsize
        others = ("squared_hinge: the loss of LinearSVC, faster, without probabilities",)
        return Advice("LinearClassifier", "log_loss", "auto", "auto", nbytes, _all_outputs(facts), reasons, others)
    if K < _MANY:
        reasons["loss"] = f"{K} classes, one per row: joint probabilities"
        reasons["solver"] = f"{n} {rows} rows, {d} features: chosen by the conditioning of the problem"
        nbytes = (n + d) * K * facts.itemsize * 2
        choices = ["crammer_singer: the multiclass SVM, often as accurate and without probabilities"]
        if facts.available is not None and nbytes > facts.available:
            choices.append(_ON_DISK)
        if not facts.sparse and d <= _PIXELS:
            choices.append(
                "StagewiseClassifier (--estimator stagewise): if a linear model is not accurate enough; for images "
                "StagewiseClassifier.for_images((28, 28, 1)) (--images 28,28,1: height, width, channels)"
            )
        return Advice(
            "LinearClassifier", "multinomial", "auto", "auto", nbytes, _all_outputs(facts), reasons, tuple(choices)
        )
    # Active sets: a few classes per row, sparse weights, an exact pass over all classes every few epochs.
    weights = min(d * K, facts.n_stored * _RIVALS) * (facts.itemsize + 4)
    nbytes = weights + n * _RIVALS * (facts.itemsize + 4)
    short = facts.available is not None and nbytes > facts.available // 2
    if short or K >= _VERY_MANY:
        why = "too little memory for sdca_active" if short else f"{K} classes: exact passes over all of them dominate"
        reasons["loss"] = "the multiclass SVM: only the true class and the best other class of a row matter"
        reasons["solver"] = f"{why}; MEMOIR uses bounds on blocks of classes, and gives no certificate"
        return Advice(
            *("LinearClassifier", "crammer_singer", "memoir", "auto"),
            nbytes=2 * weights,
            seconds=_best_rival(facts),
            reasons=reasons,
            alternatives=("solver='sdca_active': more accurate and certified, with enough time and memory",),
        )
    reasons["loss"] = f"{K} classes: the multiclass SVM was the most accurate in our benchmarks with many classes"
    reasons["solver"] = "'auto' is sdca_active here: sparse dual variables on active sets of classes, certified"
    reasons["intercept"] = (
        "'auto' fits none for sparse rows with this many classes" if facts.sparse else "'auto' fits one for dense rows"
    )
    return Advice(
        *("LinearClassifier", "crammer_singer", "auto", "auto"),
        nbytes=nbytes,
        seconds=_active_sets(facts),
        reasons=reasons,
        alternatives=(
            "early_stopping=True (--early-stopping 5): ends where the accuracy on held-out rows no longer rises",
            "solver='memoir' with CrammerSinger(gamma=0): less memory, no certificate",
            "probabilities: `manyclass calibrate` on held-out rows gives them to each of these; multinomial has "
            "its own, and needs memory for n_samples x n_classes numbers",
            _ON_DISK,
        ),
    )


def seconds_of(solver: str, facts: Facts) -> float | None:
    """Approximate time of a fit on one core, correct to a factor of about five.

    Parameters
    ----------
    solver : str
        Name of the solver; not "auto".
    facts : Facts
        The properties of the data.

    Returns
    -------
    float or None
        Seconds; None if the work of the solver cannot be estimated in advance.

    Examples
    --------
    >>> facts = Facts(119_314, 40_000, 1_500_000, 11_774, "classes", True)
    >>> seconds_of("sdca_active", facts) < seconds_of("sdca", facts)
    True
    >>> seconds_of("lbfgs", facts)
    """
    count = _COUNTED.get(solver)
    return None if count is None else count(facts)


def _all_outputs(facts: Facts) -> float:
    return _EPOCHS * 4.0 * facts.n_stored * facts.n_outputs / _rate(facts)


def _active_sets(facts: Facts) -> float:
    steps = _EPOCHS * 4.0 * facts.n_stored * _RIVALS / _rate(facts)
    return steps + _EPOCHS / 6 * 2.0 * facts.n_stored * facts.n_outputs / _PASS


def _best_rival(facts: Facts) -> float:
    return 400.0 * facts.n_stored * float(facts.n_outputs**0.6) / _rate(facts)


def _rate(facts: Facts) -> float:
    return _SPARSE if facts.sparse else _DENSE


#: Name of a solver -> estimated seconds of a fit, for solvers whose work can be estimated in advance.
_COUNTED = {"sdca": _all_outputs, "sdca_active": _active_sets, "memoir": _best_rival}

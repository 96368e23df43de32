"""The estimators' common parameters, and docstrings made from the declarations that also check them."""

import inspect
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from palearn.learners import LEARNERS, Parameter

COMMON = (
    Parameter("fit_intercept", True, "Add a constant feature 1, a feature like any other.", truth=True),
    Parameter("max_iter", 1000, "Most epochs of fit.", at_least=1, integer=True),
    Parameter(
        "tol",
        1e-3,
        "Smallest gain of an epoch that counts as progress; None: do all epochs.",
        at_least=0,
        optional=True,
    ),
    Parameter("early_stopping", False, "Gain is accuracy on a held-out part, not hinge loss.", truth=True),
    Parameter("validation_fraction", 0.1, "Part held out for early_stopping.", above=0, below=1),
    Parameter("n_iter_no_change", 5, "So many epochs without gain end fit.", at_least=1, integer=True),
    Parameter("shuffle", True, "New random order in each epoch of fit, never in partial_fit.", truth=True),
    Parameter("verbose", 0, "Log every epoch (logger palearn.sklearn).", at_least=0, integer=True, truth=True),
    Parameter("warm_start", False, "fit goes on from the last model instead of a new one.", truth=True),
)
LOSS = Parameter(
    "loss", "hinge", "hinge caps the step at C, squared_hinge dampens it.", words=("hinge", "squared_hinge")
)
AVERAGE = Parameter(
    "average",
    False,
    "Use the average of the weights over all examples, or from so many examples on.",
    truth=True,
    at_least=1,
    integer=True,
)
#: Domain and meaning of parameters that a :class:`Parameter` does not declare.
_OTHERS = {
    "random_state": ("an integer, a RandomState or None", "Seed of the order and of the held-out part."),
    "class_weight": (
        "a dict {label: weight}, 'balanced' or None",
        "Weights of the classes; partial_fit multiplies them with its sample_weight.",
    ),
    "n_jobs": ("an integer or None", "Accepted for scikit-learn's signature; the classes are learned in turn."),
}
_HARD = " or inf (a hard margin, whatever the loss)"

_ATTRIBUTES = {
    "classes_ : ndarray of shape (n_classes,)": "The labels, sorted.",
    "coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)": "Weights.",
    "intercept_ : ndarray of shape (1,) or (n_classes,)": "Weight of the constant feature; 0 without it.",
    "n_features_in_ : int": "Number of features.",
    "feature_names_in_ : ndarray of shape (n_features_in_,)": "Their names, where X had names.",
    "n_iter_ : int": "Epochs of the last fit; of one class against all the others, the most.",
    "t_ : float": "1 + examples learned, over all epochs.",
}
_VARIANCES = {"variances_ : ndarray of the shape of coef_": "Variances of the weights."}

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, eq_default=False)
def estimator(cls: type[T]) -> type[T]:
    """Make ``__init__`` of the fields, all keyword-only, and write parameters and attributes into the docstring."""
    made = dataclass(kw_only=True, eq=False, repr=False)(cls)
    head, mark, examples = inspect.cleandoc(made.__doc__ or "").partition("Examples\n--------\n")
    attributes = _ATTRIBUTES | (_VARIANCES if hasattr(made, "variances_") else {})
    parts = [
        head.rstrip(),
        "\nParameters\n----------",
        *_parameters(made),
        "\nAttributes\n----------",
        *(f"{name}\n    {meaning}" for name, meaning in attributes.items()),
    ]
    made.__doc__ = "\n".join(parts) + f"\n\n{mark}{examples}\n"
    return made


def _parameters(cls: Any) -> list[str]:
    """Return an entry a parameter, the learner's own before those of every estimator."""
    declared = {p.name: p for name in reversed(cls.algorithms) for p in LEARNERS[name].parameters}
    common = {p.name: p for p in COMMON}
    if len(cls.algorithms) > 1:
        declared["loss"] = LOSS
    declared |= {AVERAGE.name: AVERAGE} | common
    names = list(inspect.signature(cls).parameters)
    names.sort(key=lambda name: name in common or name in _OTHERS)
    entries = []
    for name in names:
        default = getattr(cls, name)
        domain, meaning = _OTHERS[name] if name in _OTHERS else (declared[name].domain, declared[name].meaning)
        if name == "C" and cls.hard_margin:
            domain += _HARD
        if name in declared and default != declared[name].default:
            meaning += f" None: {declared[name].default}, unless phi is given."
        entries.append(f"{name} : {domain}, default={default!r}\n    {meaning}")
    return entries

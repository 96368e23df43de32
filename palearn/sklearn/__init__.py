"""The learners as scikit-learn estimators: ``fit``, ``partial_fit``, ``predict``, ``decision_function``.

The kernels are those of :func:`palearn.make`, and so are the weights.
"""

try:
    from palearn.sklearn.estimators import (
        AdaGradRDAClassifier,
        AROWClassifier,
        CWClassifier,
        NHERDClassifier,
        PAMClassifier,
        PAMeanClassifier,
        PassiveAggressiveClassifier,
        PerceptronClassifier,
        SCWClassifier,
        SecondOrderPerceptronClassifier,
        SupportClassPAClassifier,
    )
except ImportError as error:
    if not (error.name or "").startswith("sklearn"):
        raise
    raise ImportError(
        f"palearn.sklearn needs scikit-learn 1.6 or newer: pip install 'palearn[sklearn]' ({error})", name=error.name
    ) from error

__all__ = [
    "AROWClassifier",
    "AdaGradRDAClassifier",
    "CWClassifier",
    "NHERDClassifier",
    "PAMClassifier",
    "PAMeanClassifier",
    "PassiveAggressiveClassifier",
    "PerceptronClassifier",
    "SCWClassifier",
    "SecondOrderPerceptronClassifier",
    "SupportClassPAClassifier",
]

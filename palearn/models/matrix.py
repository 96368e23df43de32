"""One model over a matrix: columns in place of feature names, for batch libraries and benchmarks.

The kernels are the stream's own; a matrix saves the names, the counts and the bytes, which cost far more than a
step does.
"""

from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from palearn.errors import LearnerError
from palearn.learners import Learner, Outcome, Rows, empty_outcome, grown, layout_of
from palearn.models.vectorize import select
from palearn.types import FloatArray, Int32Array, IntArray

#: A dense array or any scipy sparse matrix, examples x features.
Matrix: TypeAlias = Any


class MatrixModel:
    """One learner's model over numbered features.

    Parameters
    ----------
    learner
        A learner of one view.
    features
        Number of columns.
    classes
        Number of classes; a binary learner has 2.
    bias
        Whether every example has one more feature, a constant 1, last in its row.

    Raises
    ------
    LearnerError
        A full covariance would have to hold more features, or a joint one more classes, than it may.
    """

    def __init__(self, learner: Learner, features: int, classes: int = 2, *, bias: bool = True) -> None:
        for size, most, what in (
            (features, learner.max_features, "features (max_full_features)"),
            (classes, learner.max_classes, "classes (max_classes)"),
        ):
            if most is not None and size > most:
                raise LearnerError(
                    f"{learner.algorithm}: this covariance holds at most {most} {what}, got {size}; "
                    "covariance='diagonal' has no such limit"
                )
        self.learner, self.features, self.classes, self.bias = learner, features, classes, bias
        blocks = 1 if learner.task == "binary" else classes
        self.layout = layout_of(np.array([features + bias]), np.array([blocks]))
        nothing = layout_of(np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.arrays = {spec.name: grown(spec, np.zeros(0), nothing, self.layout) for spec in learner.arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Loaded arrays may be mapped from a file that is not to be written.
        self.layout = layout_of(np.array(self.layout.features), np.array(self.layout.blocks))
        self.arrays = {name: np.array(array) for name, array in self.arrays.items()}

    def go_on_with(self, learner: Learner) -> None:
        """Learn on with a learner of the same task that keeps the same arrays, say with another C."""
        if (learner.task, learner.arrays) != (self.learner.task, self.learner.arrays):
            raise LearnerError(
                f"{learner.algorithm}: these options keep other numbers than the model has; learn a new model"
            )
        self.learner = learner

    def learn(self, x: Matrix, y: IntArray, weight: FloatArray | None = None) -> Outcome:
        """Score and learn examples one after the other.

        Parameters
        ----------
        x
            Examples x features, finite.
        y
            Class numbers, 0 to classes - 1; binary: 1 is the positive class.
        weight
            Weight of each example, > 0; None: 1.

        Returns
        -------
        Outcome
            What happened to each row; ``predicted`` is the prediction made before it was learned.
        """
        return self.run(self.rows(x, y, weight))

    def run(self, rows: Rows, classes: int = 0) -> Outcome:
        """Score, and learn those of ``rows`` that may be; ``classes`` > 0 asks for every class's score."""
        out = empty_outcome(rows.key.size, classes)
        self.learner.run([rows], self.layout, self.arrays, out)
        return out

    def scores(self, x: Matrix) -> FloatArray:
        """Return binary scores (n), or those of every class (n, classes)."""
        n = x.shape[0]
        rows = self.rows(x, np.full(n, -1))
        if self.learner.task == "binary":
            return self.run(rows).score
        return self.run(rows, self.classes).scores

    def weights(self) -> FloatArray:
        """Return the weights, blocks x features; the bias's is the last column."""
        return self.learner.weights(self.layout, self.arrays).reshape(self.layout.features[0], -1).T

    def variances(self) -> FloatArray | None:
        """Return the variances in the shape of :meth:`weights`; None for a first-order learner."""
        found = self.learner.variances(self.layout, self.arrays, np.zeros(1, np.int64))
        return None if found is None else found.reshape(self.layout.features[0], -1).T

    def rows(self, x: Matrix, y: IntArray, weight: FloatArray | None = None) -> Rows:
        """Return the examples as the kernels take them; dense and sparse input give the same rows."""
        ptr, slot, value = compressed(x)
        if x.shape[1] != self.features:
            raise ValueError(f"the model has {self.features} features, the matrix has {x.shape[1]} columns")
        n = ptr.size - 1
        bias = self.features if self.bias else -1
        ptr, slot, value, norm = select(1, ptr, slot, value, 0, n, -1, bias)
        learn = (norm > 0.0) & (norm < np.inf)
        known = np.full(n, self.classes)
        ones = np.ones(n) if weight is None else weight
        return Rows(ptr, slot, value, norm, np.zeros(n, np.int64), y.astype(np.int64), known, learn, ones)


def compressed(x: Matrix) -> tuple[IntArray, Int32Array, FloatArray]:
    """Return (row pointers, columns, values) without zeros, columns ascending in each row and once each."""
    rows = sparse.csr_array(x, dtype=np.float64)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if not rows.data.all():
        rows = rows.copy()
        rows.eliminate_zeros()
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data

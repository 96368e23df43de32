"""A model that keeps the average of its weights over the examples."""

import numpy as np
from scipy import sparse

from palearn.learners import Learner, Outcome, Rows
from palearn.models.matrix import MatrixModel
from palearn.types import FloatArray


class AveragedModel(MatrixModel):
    """A binary first-order model and the average of its weights after each example.

    A step adds tau y x to the weights after this example and all later ones. So the sum of the weights over n
    examples is n times those before the first, plus each step times the examples from it on: one sparse product.

    Parameters
    ----------
    learner, features, bias
        As for :class:`palearn.models.matrix.MatrixModel`.
    start
        Number of the first example that counts, from 1; 0: no average is kept.
    """

    def __init__(self, learner: Learner, features: int, *, bias: bool, start: int) -> None:
        super().__init__(learner, features, bias=bias)
        self.start = start
        self.restart()

    def restart(self) -> None:
        """Begin a new average; the weights stay."""
        self.seen = self.counted = 0
        self.sums: FloatArray = np.zeros(self.features + self.bias)

    def learn_rows(self, rows: Rows) -> Outcome:
        """Learn rows, and count their weights in the average."""
        n = rows.key.size
        counted = min(max(self.seen + n + 1 - self.start, 0), n) if self.start else 0
        before = counted * self.arrays["w"]
        out = self.run(rows)
        if counted:
            steps = out.tau * (2.0 * rows.y - 1.0) * np.minimum(np.arange(n, 0, -1), counted)
            x = sparse.csr_array((rows.value, rows.slot, rows.ptr), shape=(n, self.sums.size))
            self.sums = self.sums + before + x.T @ steps
        self.seen += n
        self.counted += counted
        return out

    def weights(self) -> FloatArray:
        """Return the average of the weights, or the weights where no example counts yet; the bias's is last."""
        return self.sums[None] / self.counted if self.counted else super().weights()

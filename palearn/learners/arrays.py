"""The arrays that the kernels read and change: rows of examples, the layout of many keys' numbers, outcomes.

All arrays are flat, float64 unless said otherwise. A key has ``features x blocks`` weights, feature-major: the
weight of local feature ``f`` and block ``b`` of key ``k`` is number ``start[k] + f * blocks[k] + b``. A binary
learner has one block, a multiclass learner one a class.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from palearn.types import BoolArray, FloatArray, Int32Array, IntArray

WEIGHTS, PACKED, JOINT, KEY = "weights", "packed", "joint", "key"


class Rows(NamedTuple):
    """A run of n examples: compressed sparse rows over each key's local features.

    ``ptr`` (n + 1), ``slot`` and ``value`` (non-zeros) are the features; ``norm`` (n) is |x|^2, which counts
    also features that the model has not seen and that have no slot; ``key`` (n) the model of each row;
    ``y`` (n) its class number (binary: 0 negative, 1 positive), -1 where there is no label;
    ``known`` (n) how many classes the model knew before the row; ``learn`` (n) whether it may be learned;
    ``weight`` (n) the example's weight, > 0.
    """

    ptr: IntArray
    slot: Int32Array
    value: FloatArray
    norm: FloatArray
    key: IntArray
    y: IntArray
    known: IntArray
    learn: BoolArray
    weight: FloatArray


class Layout(NamedTuple):
    """Where each key's numbers are: feature and block counts, and the first index in arrays of each shape.

    ``start`` is that of :data:`WEIGHTS`, ``packed`` of :data:`PACKED`, ``joint`` of :data:`JOINT`; each has one
    entry more than there are keys.
    """

    features: IntArray
    blocks: IntArray
    start: IntArray
    packed: IntArray
    joint: IntArray


class Outcome(NamedTuple):
    """What happened to each of n rows.

    ``score``: binary score, or the highest class score; ``predicted``: class number, -1 before any class is
    known; ``hinge``: max(0, 1 - margin), 0 where there is no label; ``updated``: the learner took a step;
    ``tau``: its size, binary and one view: w += tau y Sigma x;
    ``difference``: mean |score of one view - score of another|, -1 where it does not apply;
    ``scores``: (n, classes) all class scores, filled only if it has rows.
    """

    score: FloatArray
    predicted: IntArray
    hinge: FloatArray
    updated: BoolArray
    tau: FloatArray
    difference: FloatArray
    scores: FloatArray


@dataclass(frozen=True)
class ArraySpec:
    """An array a learner keeps.

    Parameters
    ----------
    name
        Its name, also in the stored bytes.
    shape
        ``weights``: ``width`` numbers a weight; ``packed``: a triangle of features x features a block;
        ``joint``: one triangle of (features x blocks) x (features x blocks), rows in the order of the weights;
        ``key``: ``width`` numbers a key.
    fill
        Value of a number never touched; of a triangle: of its diagonal, the rest is 0.
    width
        Numbers a weight, or a key.
    """

    name: str
    shape: str
    fill: float
    width: int = 1

    @property
    def triangular(self) -> bool:
        """Whether it holds triangles (:mod:`palearn.learners.factored_covariance`)."""
        return self.shape in (PACKED, JOINT)

    def runs(self, layout: Layout) -> IntArray:
        """Return where each key's numbers begin; one entry more than there are keys."""
        if self.shape == KEY:
            return self.width * np.arange(layout.features.size + 1)
        ptr = {WEIGHTS: layout.start, PACKED: layout.packed, JOINT: layout.joint}[self.shape]
        return self.width * ptr


def pointers(sizes: IntArray) -> IntArray:
    """Return where runs of these sizes begin, and where the last one ends."""
    out = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


def layout_of(features: IntArray, blocks: IntArray) -> Layout:
    """Return where each key's numbers are, given its features and blocks."""
    weights = features * blocks
    packed, joint = blocks * (features * (features + 1) // 2), weights * (weights + 1) // 2
    return Layout(features, blocks, pointers(weights), pointers(packed), pointers(joint))


def empty_outcome(n: int, classes: int = 0) -> Outcome:
    """Return an outcome of n rows to be filled; ``classes`` > 0 asks for every class's score."""
    scores = np.zeros((n if classes else 0, classes))
    return Outcome(
        np.zeros(n), np.zeros(n, np.int64), np.zeros(n), np.zeros(n, np.bool_), np.zeros(n), np.full(n, -1.0), scores
    )

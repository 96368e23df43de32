"""How a learner's arrays follow their keys: new keys, features and classes, and features that leave."""

import numpy as np

from palearn.learners import factored_covariance
from palearn.learners.arrays import JOINT, KEY, WEIGHTS, ArraySpec, Layout
from palearn.learners.jit import kernel
from palearn.types import FloatArray, IntArray


def grown(spec: ArraySpec, array: FloatArray, old: Layout, new: Layout) -> FloatArray:
    """Return the array in a layout with as many keys or more, features and blocks; what is new is untouched."""
    if spec.shape == KEY:
        out = np.full(spec.runs(new)[-1], spec.fill)
        out[: array.size] = array
        return out
    if spec.shape == WEIGHTS:
        return np.asarray(_grow_weights(array, old, new, spec.fill, spec.width))
    grow = _grow_joint if spec.shape == JOINT else _grow_packed
    return np.asarray(grow(array, old, new, spec.fill))


def without_features(spec: ArraySpec, run: FloatArray, features: int, blocks: int, stay: IntArray) -> FloatArray:
    """Return one key's numbers with only the features ``stay`` (ascending)."""
    if spec.shape == WEIGHTS:
        return run.reshape(features, blocks * spec.width)[stay].ravel()
    if spec.shape == JOINT:
        stay = (stay[:, None] * blocks + np.arange(blocks)).ravel()
        return np.asarray(factored_covariance.keep(run, 0, features * blocks, stay))
    if spec.shape == KEY:
        return run
    size = features * (features + 1) // 2
    return np.concatenate([factored_covariance.keep(run, b * size, features, stay) for b in range(blocks)])


@kernel
def variances(joint, array, layout, keys):  # type: ignore[no-untyped-def]
    """Return the diagonals of the keys' triangles in the layout of a weights array, 0 for the other keys."""
    out = np.zeros(layout.start[-1])
    for k in keys:
        features, blocks, start = layout.features[k], layout.blocks[k], layout.start[k]
        if joint:
            factored_covariance.variances(array, layout.joint[k], features * blocks, out[start : layout.start[k + 1]])
            continue
        diagonal = np.empty(features)
        for b in range(blocks):
            factored_covariance.variances(
                array, layout.packed[k] + b * (features * (features + 1) // 2), features, diagonal
            )
            for f in range(features):
                out[start + f * blocks + b] = diagonal[f]
    return out


@kernel
def _grow_weights(array, old, new, fill, width):  # type: ignore[no-untyped-def]
    out = np.full(new.start[-1] * width, fill)
    for k in range(old.features.size):
        before, after = old.blocks[k] * width, new.blocks[k] * width
        for f in range(old.features[k]):
            for b in range(before):
                out[new.start[k] * width + f * after + b] = array[old.start[k] * width + f * before + b]
    return out


@kernel
def _grow_packed(array, old, new, fill):  # type: ignore[no-untyped-def]
    out = np.zeros(new.packed[-1])
    keys = old.features.size
    for k in range(new.features.size):
        after = new.features[k] * (new.features[k] + 1) // 2
        for b in range(new.blocks[k]):
            to = new.packed[k] + b * after
            held = old.features[k] if k < keys and b < old.blocks[k] else 0
            size = held * (held + 1) // 2
            for j in range(size):
                out[to + j] = array[old.packed[k] + b * size + j]
            for f in range(held, new.features[k]):
                out[to + f * (f + 1) // 2 + f] = fill
    return out


@kernel
def _grow_joint(array, old, new, fill):  # type: ignore[no-untyped-def]
    """New weights stand between old ones, which keep their order: a triangle stays one, with rows put in."""
    out = np.zeros(new.joint[-1])
    for k in range(new.features.size):
        size = new.features[k] * new.blocks[k]
        for j in range(size):
            out[new.joint[k] + j * (j + 1) // 2 + j] = fill
        if k >= old.features.size:
            continue
        before, after = old.blocks[k], new.blocks[k]
        for j in range(old.features[k] * before):
            column = new.joint[k]
            at = j // before * after + j % before
            column += at * (at + 1) // 2
            for i in range(j + 1):
                out[column + i // before * after + i % before] = array[old.joint[k] + j * (j + 1) // 2 + i]
    return out

"""Kernels that write keys' features and weights as lists of the models table."""

import numpy as np
from numba import njit


@njit(cache=True)
def allowed_features(feature_ptr, feature, allowed, keys):  # type: ignore[no-untyped-def]
    """Return keys' features that are allowed, key after key, and where each key's begin."""
    ptr = np.zeros(keys.size + 1, np.int32)
    out = np.empty(feature.size, np.int32)
    at = 0
    for i in range(keys.size):
        for j in range(feature_ptr[keys[i]], feature_ptr[keys[i] + 1]):
            if allowed[feature[j]]:
                out[at] = feature[j]
                at += 1
        ptr[i + 1] = at
    return ptr, out[:at]


@njit(cache=True)
def label_major(array, layout, keys, feature_ptr, feature, allowed):  # type: ignore[no-untyped-def]
    """Return keys' values of a weights array block after block (label-major)."""
    ptr = np.zeros(keys.size + 1, np.int32)
    most = 0
    for k in keys:
        most += layout.features[k] * layout.blocks[k]
    out = np.empty(most)
    at = 0
    for i in range(keys.size):
        k = keys[i]
        features, blocks = layout.features[k], layout.blocks[k]
        for b in range(blocks):
            for f in range(features):
                if allowed[feature[feature_ptr[k] + f]]:
                    out[at] = array[layout.start[k] + f * blocks + b]
                    at += 1
        ptr[i + 1] = at
    return ptr, out[:at]

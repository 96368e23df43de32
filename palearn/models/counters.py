"""Prequential (test-then-train) counts of a key and learner: exact, cumulative, independent of batches.

Only labelled examples count, each with the prediction made before it was learned; where the label came later than
the features, with the one made when they came. Hinge loss and view difference are of the moment of learning.

The figures:

* error: mistakes / n; a prediction made before any class is known is a mistake;
* window error: over the last ``window`` examples, kept as a ring of bits;
* faded error: sum of fading^age * mistake / sum of fading^age (Gama, Sebastiao and Rodrigues 2013);
* no-change baseline: predicts the key's previous label (its first example counts as a mistake);
* kappa: agreement beyond chance, from the marginal counts (Cohen 1960);
* F1, precision and recall of each label;
* log loss and Brier score: means of -log of the label's probability, and of the sum over classes (binary: the positive
  one alone) of (probability - 1 if it is the label else 0)^2 (:mod:`palearn.models.calibration`);
* view difference: mean |score of one view - score of another|, over all examples and faded (Nguyen, Chang and Hui 2012,
  section 4.1).
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from palearn.types import FloatArray

#: Columns of a key's integer counts. ``last_seen`` orders keys by their last record in the bucket;
#: ``changed`` says that the models table has no row of the key's present state, ``updated_batch`` since when.
KEY_COUNTS = (
    "n_seen", "n_learned", "n", "last_label", "baseline_mistakes",
    "last_seen", "last_partition", "last_offset", "changed", "updated_batch",
)  # fmt: skip
N_SEEN, N_LEARNED, N, LAST_LABEL, BASELINE_MISTAKES = range(5)
LAST_SEEN, LAST_PARTITION, LAST_OFFSET, CHANGED, UPDATED_BATCH = range(5, 10)
#: Columns of a learner's integer counts and float sums, a row a key.
LEARNER_COUNTS = ("mistakes", "updates", "window_mistakes", "difference_n", "probability_n")
MISTAKES, UPDATES, WINDOW_MISTAKES, DIFFERENCE_N, PROBABILITY_N = range(5)
LEARNER_SUMS = (
    "hinge", "faded", "faded_weight", "difference", "faded_difference", "faded_difference_weight", "log_loss", "brier",
    "slope", "offset", "curvature_slope", "curvature_both", "curvature_offset",
)  # fmt: skip
HINGE, FADED, FADED_WEIGHT, DIFFERENCE, FADED_DIFFERENCE, FADED_DIFFERENCE_WEIGHT, LOG_LOSS, BRIER = range(8)
SLOPE, OFFSET, CURVATURE_SLOPE, CURVATURE_BOTH, CURVATURE_OFFSET = range(8, 13)
#: Those of :mod:`palearn.models.calibration`.
CALIBRATION = slice(SLOPE, CURVATURE_OFFSET + 1)

#: One example adds at most this much to the sum of hinge losses, so that the sum stays finite.
MOST_HINGE = 1e100


#: So many standard deviations are certain: of a million keys hardly one is that far off by chance.
CERTAIN = 5.0


def certain_error(mistakes: NDArray[Any], n: NDArray[Any]) -> FloatArray:
    """Return the error that keys have for certain: the lower end of its interval (Wilson 1927); 0 without records.

    This is the one order of bad keys, over all their records (which keys are bad in all that they saw) and over those
    of their window (which are bad now). Of many keys with few records some are wrong each time by chance, and these do
    not come first; of keys with as many records each it is the order of their errors. It does not depend on how many
    keys there are, so tasks that know only their own keys order them alike.
    """
    z2 = CERTAIN * CERTAIN
    n = np.asarray(n, np.float64)
    share = mistakes / np.maximum(n, 1.0)
    some = share * n + z2 / 2 - CERTAIN * np.sqrt(n * share * (1 - share) + z2 / 4)
    # Without a mistake the difference is 0, and rounding shall not order such keys.
    least: FloatArray = np.where(share > 0, some / (n + z2), 0.0)
    return least


@njit(cache=True)
def count_learner(key, y, out, n, window, fading, class_ptr, ring_ptr, counts, sums, hits, predictions, ring):  # type: ignore[no-untyped-def]
    """Add the outcomes of a run of rows to one learner's figures.

    ``n`` (a row a key) is each key's count of labelled examples before the run; it is left as it was.
    ``hits`` and ``predictions`` are counts a class (``class_ptr``), ``ring`` bits of mistakes (``ring_ptr``).
    """
    seen = n.copy()
    for i in range(key.size):
        k = key[i]
        counts[k, UPDATES] += out.updated[i]
        if y[i] < 0:
            continue
        predicted = out.predicted[i]
        mistake = predicted != y[i]
        position = seen[k] % window
        seen[k] += 1
        byte, bit = ring_ptr[k] + position // 8, np.uint8(1 << (position % 8))
        if ring[byte] & bit:
            counts[k, WINDOW_MISTAKES] -= 1
        if mistake:
            counts[k, MISTAKES] += 1
            counts[k, WINDOW_MISTAKES] += 1
            ring[byte] |= bit
        else:
            hits[class_ptr[k] + y[i]] += 1
            ring[byte] &= np.uint8(255 - bit)
        if predicted >= 0:
            predictions[class_ptr[k] + predicted] += 1
        sums[k, HINGE] += min(out.hinge[i], MOST_HINGE)
        sums[k, FADED] = fading * sums[k, FADED] + (1.0 if mistake else 0.0)
        sums[k, FADED_WEIGHT] = fading * sums[k, FADED_WEIGHT] + 1.0
        if out.difference[i] >= 0.0:
            counts[k, DIFFERENCE_N] += 1
            difference = min(out.difference[i], MOST_HINGE)
            sums[k, DIFFERENCE] += difference
            sums[k, FADED_DIFFERENCE] = fading * sums[k, FADED_DIFFERENCE] + difference
            sums[k, FADED_DIFFERENCE_WEIGHT] = fading * sums[k, FADED_DIFFERENCE_WEIGHT] + 1.0


@njit(cache=True)
def count_keys(key, y, learn, again, class_ptr, counts, labels):  # type: ignore[no-untyped-def]
    """Add a run of rows to the keys' own figures; ``labels`` are counts a class (``class_ptr``).

    Rows ``again`` were counted as seen when they were scored.
    """
    for i in range(key.size):
        k = key[i]
        counts[k, N_SEEN] += not again[i]
        counts[k, N_LEARNED] += learn[i]
        if y[i] < 0:
            continue
        counts[k, N] += 1
        counts[k, BASELINE_MISTAKES] += counts[k, LAST_LABEL] != y[i]
        counts[k, LAST_LABEL] = y[i]
        labels[class_ptr[k] + y[i]] += 1


@njit(cache=True)
def kappas(keys, n, mistakes, class_ptr, labels, predictions):  # type: ignore[no-untyped-def]
    """Cohen's kappa of each of ``keys``: (observed - chance) / (1 - chance); 0 where chance is certain."""
    out = np.zeros(keys.size)
    for i in range(keys.size):
        k = keys[i]
        if n[k] == 0:
            continue
        chance = 0.0
        for c in range(class_ptr[k], class_ptr[k + 1]):
            chance += (labels[c] / n[k]) * (predictions[c] / n[k])
        if chance < 1.0:
            out[i] = (1.0 - mistakes[k] / n[k] - chance) / (1.0 - chance)
    return out

"""A key's weights by name, as a models table has them: the strongest, and how two models differ.

A second-order learner keeps a variance for each weight: it takes the weights for normally distributed, each around
its value, and its examples narrow them. ``z_score``, a weight over the root of its variance, says how many
standard z_score it is from 0: below 1 the learner could as well have the other sign, above 3 it is quite sure. That
is the learner's own belief, not a test of significance: variances start where ``initial_variance`` says, shrink with
each example whatever its noise, and how fast is up to r or C. Compare weights of one model by it, not models.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

from palearn.errors import FileFormatError
from palearn.tables import reading


class Choice(NamedTuple):
    """A key's models as of a batch; None: the newest."""

    key: str
    batch: int | None = None


class Weight(NamedTuple):
    """A weight: binary, of the positive ``label``; features of views are named ``VIEW:NAME``."""

    learner: str
    label: str
    feature: str
    weight: float
    variance: float | None
    z_score: float | None


class Difference(NamedTuple):
    """A weight in two models, None where one does not have it (and scores with 0), and the second less the first."""

    learner: str
    label: str
    feature: str
    weight: float | None
    other: float | None
    difference: float
    variance: float | None
    other_variance: float | None


#: Weights of one learner: class (None: of the only block) and feature -> weight.
_Named = dict[tuple[str | None, str], Weight]


def strongest(path: str | Path, chosen: Choice, *, learner: str | None = None, top: int = 10) -> list[Weight]:
    """Return the largest weights of each learner of a key, largest first.

    Parameters
    ----------
    path
        Output folder of a job.
    chosen
        The key, and as of which batch.
    learner
        This learner alone.
    top
        How many a learner.

    Raises
    ------
    FileFormatError
        There is no such model.
    """
    found = []
    for weights in _models(path, chosen, learner).values():
        found += sorted(weights.values(), key=lambda x: -abs(x.weight))[:top]
    return found


def compared(
    path: str | Path, one: Choice, other: Choice, *, learner: str | None = None, top: int = 10
) -> list[Difference]:
    """Return the largest differences of each learner between two models, largest first.

    Parameters
    ----------
    path, learner, top
        As in :func:`strongest`; learners that only one of the two has are left out.
    one, other
        Two keys, or one as of two batches.

    Raises
    ------
    FileFormatError
        There is no such model.
    """
    first, second = (_models(path, chosen, learner) for chosen in (one, other))
    found = []
    for name in sorted(first.keys() & second.keys()):
        differences = [_difference(first[name].get(at), second[name].get(at)) for at in first[name] | second[name]]
        found += sorted(differences, key=lambda x: (-abs(x.difference), x.label, x.feature))[:top]
    return found


def _difference(one: Weight | None, other: Weight | None) -> Difference:
    shown = one or other
    assert shown is not None
    weight, second = (None if x is None else x.weight for x in (one, other))
    variances = (None if x is None else x.variance for x in (one, other))
    return Difference(*shown[:3], weight, second, (second or 0.0) - (weight or 0.0), *variances)


def _models(path: str | Path, chosen: Choice, learner: str | None) -> dict[str, _Named]:
    """Return the weights of each learner of a key."""
    key, batch = chosen
    frame = reading.latest_models(path, key=key, batch=batch)
    if learner is not None:
        frame = frame[frame["learner"] == learner]
    if frame.empty:
        whose = f"key {key!r}" + (f" and learner {learner!r}" if learner else "")
        raise FileFormatError(f"{path} has no model of {whose}" + ("" if batch is None else f" up to batch {batch}"))
    return {row["learner"]: _weights(row) for row in frame.to_dict("records")}


def _weights(row: dict[str, Any]) -> _Named:
    """Return the weights of a row by class and feature; of two labels and one block of weights the class is None."""
    features, labels = list(row["features"]), list(row["labels"])
    blocks = len(row["weights"]) // len(features) if features else 0
    found = {}
    for i, weight in enumerate(row["weights"].tolist()):
        feature, label = features[i % len(features)], labels[len(labels) - blocks + i // len(features)]
        variance = None if row["variances"] is None else float(row["variances"][i])
        z_score = None if variance is None else weight / math.sqrt(variance)
        place = (None if len(labels) > blocks else label, feature)
        found[place] = Weight(row["learner"], label, feature, weight, variance, z_score)
    return found

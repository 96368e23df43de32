"""Models to begin with, made of the rows of a models table."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from palearn.errors import ConfigError
from palearn.learners import Learner, drift_test
from palearn.learners.families import SIGMA, WEIGHTS
from palearn.models import codec
from palearn.models.counters import UPDATED_BATCH
from palearn.models.keyed import Models
from palearn.models.labels import Known, default_labels
from palearn.models.state import Settings
from palearn.records import Label, label_text

#: The batch that models which a job begins with stand for.
BEFORE = -1
#: What is read of a models table.
COLUMNS = ("key", "learner", "params", "labels", "features", "weights", "variances")


def require_known_format(version: int | None, where: str = "") -> None:
    """Raise a ConfigError if rows of a models table are of a format that only a newer palearn knows; None: no rows."""
    if version is not None and version > codec.VERSION:
        raise ConfigError(f"the models{where} were written by a newer palearn (format {version}): upgrade palearn")


def require_readable(learners: Sequence[Learner]) -> None:
    """Raise a ConfigError for a learner that keeps more than a models table has: weights and their variances."""
    for learner in learners:
        more = [spec.name for spec in learner.arrays if spec.name not in (WEIGHTS.name, SIGMA, drift_test.STATE.name)]
        if more:
            raise ConfigError(
                f"learner {learner.name!r} cannot begin with a models table, which has no {' and no '.join(more)}: "
                "give the checkpoint of a stopped job to --warm-start, or call the learner by a name that the table "
                "does not have, and it begins anew"
            )


def from_table(rows: pa.Table, settings: Settings, learners: Sequence[Learner]) -> Models:
    """Return the models of a models table's rows, one a key and learner (matched by its name).

    Weights, variances and labels are the rows'; counts, metrics and tests for drift begin at 0. A learner that a key
    has no row of, and the variances of one that had none, begin as they do for a new key.

    Raises
    ------
    ConfigError
        The rows do not fit the settings, or contradict themselves.
    """
    table: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows.select(COLUMNS).to_pylist():
        table[row["key"], row["learner"]] = row
    models = Models(settings, learners)
    keys = sorted({key for key, _ in table})
    models.add_keys(keys)
    biases = {name: j for j, name in enumerate(models.vocabulary.names)}
    number, new, slots = dict(biases), list[int](), list[dict[str, int]]()
    for k, key in enumerate(keys):
        slot = dict(biases)
        for row in (table[key, x.name] for x in learners if (key, x.name) in table):
            _require_same(row["params"], settings)
            models.labels[k] = _known(row["labels"], settings)
            for name in row["features"]:
                if name not in slot:
                    slot[name] = len(slot)
                    new.append(number.setdefault(name, len(number)))
        slots.append(slot)
    names = list(number)[len(biases) :]
    _require_views(names, settings)
    models.vocabulary.load(names)
    models.hold_keys(np.array(new, np.int32), np.array([len(slot) - len(biases) for slot in slots], np.int64))
    for k, key in enumerate(keys):
        for learner, state in zip(learners, models.states, strict=True):
            if (key, learner.name) in table:
                row = table[key, learner.name]
                at = [slots[k][name] for name in row["features"]]
                for array, column in ((WEIGHTS.name, "weights"), (SIGMA, "variances")):
                    if array in state.arrays and (column == "weights" or row[column] is not None):
                        _put(models, k, state.arrays[array], at, row, column)
    models.counts[:, UPDATED_BATCH] = BEFORE
    return models


def _put(models: Models, k: int, array: Any, at: list[int], row: dict[str, Any], column: str) -> None:
    """Write label-major values of some of a key's features into an array of the shape of the weights."""
    blocks = int(models.layout.blocks[k])
    values = np.array(row[column], np.float64)
    if values.size != blocks * len(set(at)) or len(set(at)) != len(at) or not np.isfinite(values).all():
        raise ConfigError(
            f"the {column} of key {row['key']!r:.80} and learner {row['learner']!r} are not one finite number for each "
            "label and feature of their row"
        )
    run = array[models.layout.start[k] : models.layout.start[k + 1]].reshape(-1, blocks)
    run[at] = values.reshape(blocks, len(at)).T


def _known(labels: list[str | None], settings: Settings) -> Known:
    """Return the labels that a key knows; they are compared as texts, so that numbers may stay texts."""
    if settings.task == "multiclass":
        return tuple(labels)
    negative, positive = labels
    if settings.positive is not None:
        if positive != label_text(settings.positive):
            raise ConfigError(
                f"the models' positive class is {positive!r:.80}, records.positive is {settings.positive!r:.80}"
            )
        return negative, settings.positive
    known: list[Label] = [_signed(label) for label in labels]
    for side in (0, 1):
        # What no record has named yet stands in the table by its default; the next record may name it otherwise.
        unnamed = [None if i == side else label for i, label in enumerate(known)]
        if [None if label is None else label_text(label) for label in default_labels(unnamed)] == labels:
            known = unnamed
    return tuple(known)


def _signed(text: str | None) -> Label:
    """Return the number or boolean that a text of the table stands for."""
    label: Label = text
    if text in ("true", "false"):
        return text == "true"
    try:
        label = float(str(text))
        if label.is_integer() and -(2**63) <= int(str(text)) < 2**63:
            label = int(str(text))
    except (ValueError, OverflowError):
        pass
    if isinstance(label, str) or label is None or not math.isfinite(label) or label_text(label) != text:
        raise ConfigError(f"the models' labels are text ({text!r:.80}): set records.positive, the positive class")
    return label


def _require_same(params: str, settings: Settings) -> None:
    """Raise a ConfigError if the models were learned on another task, or with or without a bias."""
    theirs = msgspec.json.decode(params)
    for name in ("task", "bias"):
        mine = getattr(settings, name)
        if theirs[name] != mine:
            raise ConfigError(
                f"the models were learned with records.{name} {theirs[name]}, the configuration has {mine}"
            )


def _require_views(names: Sequence[str], settings: Settings) -> None:
    """Raise a ConfigError if a feature is of none of the views."""
    for name in names if settings.views else ():
        if name.partition(":")[0] not in settings.views or ":" not in name:
            views = ", ".join(settings.views)
            raise ConfigError(f"the models have a feature {name!r:.80}, which is of none of records.views ({views})")

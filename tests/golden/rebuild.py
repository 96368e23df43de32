"""Build the golden blobs anew: ``python -m tests.golden.rebuild [--accept]``.

Each ``vN-NAME.palearn`` holds the bytes that format version N wrote for a small stream, and ``vN-NAME.json``
what they must decode to for ever, floats as hexadecimal. Blobs of older versions are only ever read; those of
the present version are compared with what the code writes and learns today:

* a blob is missing, or is decoded to something else, or cannot be decoded: checkpoints that users have would be
  lost. That is a breaking change: raise ``codec.VERSION``, add an upgrade, and keep the old blobs;
* the stream learns something else: what a running stream learns would change its bits. That is a breaking change
  of the learners, for the changelog.

Without ``--accept`` nothing is written over; new cases and the first blobs of a new version are always written.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from palearn.engine import result_rows
from palearn.engine.bucket import BucketConfig
from palearn.errors import StateFormatError
from palearn.models import codec
from palearn.models.keyed import Models
from tests.streams import Row, bits, even_cuts, learner, plan, rows, run

FOLDER = Path(__file__).parent
#: What ``params`` say now and did not when the first blobs were described.
_LATER = ("view", "positive", "views", "max_bytes", "max_features")


#: Labels, among which the key "ключ" calls its negative class 0.
_SIGNED, _ZERO = [1, -1, -1, 1], {("ключ", -1): 0}


def _stream(
    labels: list[Any], views: tuple[str, ...] = (), renamed: Mapping[tuple[str, Any], Any] | None = None
) -> list[Row]:
    """Records of three keys: features that come late, weights, empty and unlabelled ones, all from small integers.

    ``renamed`` are a key's own names of labels.
    """
    items = []
    for i in range(60):
        features = {f"f{(i * j) % 11}": ((i + 3 * j) % 7 - 3) / 2 for j in range(1, 4)}
        features["é" if i % 2 else "late"] = float(i > 30)
        value: dict[str, Any] = {"label": labels[(i * i + i // 4) % len(labels)], "features": features}
        if views:
            value["views"] = {views[0]: value.pop("features"), views[1]: {f"g{i % 5}": 1.0, "h": i / 8}}
        if i % 10 == 4:
            del value["label"]
        if i % 12 == 5:
            value["weight"] = 2.0
        if i % 20 == 7 and not views:
            value["features"] = {}
        key = ("a", "b", "ключ")[i % 3]
        if (name := (renamed or {}).get((key, value.get("label")))) is not None:
            value["label"] = name
        items.append((key, value))
    return rows(items, topic="news", partition=3, first=100)


def _in_parts() -> list[Row]:
    """Records of three keys whose labels come later, some never, with ids that are finished and come again."""
    items = []
    for i, row in enumerate(_stream([1, -1])):
        value = json.loads(row.value)
        label = value.pop("label", None)
        ident = {"id": f"é{i // 3}" if i % 4 else i // 3}
        key = str(row.key, "utf-8")
        items.append((key, {**ident, "features": value.get("features"), "time": float(i)}))
        if i % 5 < 3 and label is not None:
            items.insert(len(items) - i % 2, (key, {**ident, "label": label}))
        if i % 7 == 3:
            items.append(items[-2])
    return rows(items, topic="news", partition=3, first=100)


def cases() -> dict[str, tuple[BucketConfig, list[Row]]]:
    """What is kept: one learner or more of every shape of array, kind of label and bound."""
    first = (learner("pa"), learner("pa1", C=0.1), learner("pa2", tie="positive"))
    second = (learner("pam1", C=0.5), learner("arow", projection="precision"), learner("arow", "h", loss="hinge"))
    full = (learner("arow", covariance="full"), learner("pam2", covariance="full", initial_variance=2.0))
    classes = (
        learner("spa1", task="multiclass"),
        learner("arow", task="multiclass", constraints="all"),
        learner("pam", task="multiclass", covariance="full", constraints=2),
    )
    views = (learner("two_view_pa"), learner("arow"), learner("pa1", "left", view="left"))
    return {
        "first-order": (plan(*first, window=7), _stream(_SIGNED, renamed=_ZERO)),
        "second-order": (plan(*second, window=7), _stream([True, False])),
        "full": (plan(*full, bias=False), _stream([1, -1])),
        "text-labels": (plan(*first[:2], positive="spam", fading=0.9), _stream(["spam", "ham"])),
        "multiclass": (plan(*classes, task="multiclass", window=7), _stream(["x", 2, True, 0.5, "é"])),
        "means": (plan(learner("pa_mean1", queue=2), learner("sop", a=2.0), learner("adagrad_rda")), _stream([1, -1])),
        "joint": (
            plan(learner("arow", task="multiclass", covariance="joint"), task="multiclass"),
            _stream(["x", "y", 3]),
        ),
        "views": (plan(*views, views=("left", "right")), _stream([1, -1], ("left", "right"))),
        "parts": (plan(*first[:2], *second[1:], learner("arow", "whole", covariance="full"), window=7), _in_parts()),
        "bounded": (plan(learner("arow"), max_features=6), _stream([1, -1])),
        "drift": (
            plan(
                learner("pa1", drift={"action": "restart", "threshold": 2.0, "min_records": 3}),
                learner("arow", covariance="full", drift={"action": "relax", "threshold": 2.0, "min_records": 3}),
            ),
            _stream(_SIGNED, renamed=_ZERO),
        ),
        "empty": (plan(learner("arow")), []),
    }


def build(name: str) -> bytes:
    """Return the bytes that this version writes for a case, after three batches."""
    made, stream = cases()[name]
    return run(made, stream, cuts=even_cuts(len(stream), 3)).blobs.get(0) or codec.encode(
        Models(made.settings, made.learners)
    )


def describe(blob: bytes) -> dict[str, Any]:
    """Return all that is in a blob: settings, learners, and the rows of both tables, floats as their bits."""
    models = codec.decode(blob)
    every = np.arange(len(models.keys))
    texts = result_rows.Texts(models, every)
    tables: dict[str, Iterable[Any]] = {
        "models": result_rows.model_rows(models, every, texts) if models.keys else [],
        "metrics": result_rows.metric_rows(models, every, texts) if models.keys else [],
    }
    found: dict[str, Any] = {
        name: [bits(row) for batch in batches for row in batch.to_pylist()] for name, batches in tables.items()
    }
    for row in found["models"]:
        del row["format_version"]  # the version of the code that reads, not of the bytes
        params = json.loads(row["params"])  # what the kept text of older code does not have
        shown = {name: item for name, item in params.items() if name not in _LATER}
        row["params"] = msgspec.json.encode(shown).decode()
    for row in found["metrics"]:
        del row["drift"]  # was seen in a batch, and is in no bytes
    found["learners"] = [x.spec | {"tie": x.tie} for x in models.learners]
    found["clock"] = models.clock
    found["arrays"] = [{name: bits(array.tolist()) for name, array in state.arrays.items()} for state in models.states]
    if any(models.join_buffers):  # the kept text of a blob without them says nothing of rooms
        rooms = [msgspec.msgpack.decode(room) if room else None for room in models.join_buffers]
        found["rooms"] = bits(msgspec.to_builtins(rooms))
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def same(found: dict[str, Any], promised: dict[str, Any]) -> bool:
    """Whether a blob says what was written down; columns that its version did not have yet are left out."""
    for table in ("models", "metrics"):
        columns = {name for row in promised[table] for name in row}
        found[table] = [{name: row[name] for name in row if name in columns} for row in found[table]]
    return found == promised


def _judge(name: str, blob: Path, expected: Path) -> str | None:
    """Say what has changed about a case of the present version, or None."""
    if not (blob.exists() and expected.exists()):
        return None
    promised = json.loads(expected.read_text(encoding="utf-8"))
    try:
        if not same(describe(blob.read_bytes()), promised):
            return "decodes to something else: BREAKING for every checkpoint; raise codec.VERSION and add an upgrade"
    except StateFormatError as error:
        return f"cannot be decoded ({error}): BREAKING for every checkpoint; raise codec.VERSION and add an upgrade"
    if not same(describe(build(name)), promised):
        return "the same stream learns other bits: BREAKING for what a running stream learns; for the changelog"
    return None


def main(arguments: list[str]) -> int:
    accept = "--accept" in arguments
    broken = 0
    for name in cases():
        stem = FOLDER / f"v{codec.VERSION}-{name}"
        blob, expected = stem.with_suffix(".palearn"), stem.with_suffix(".json")
        fault = _judge(name, blob, expected)
        if fault:
            broken += 1
            print(f"{blob.name}: {fault}")
        if not (blob.exists() and expected.exists()) or (fault and accept):
            content = build(name)
            blob.write_bytes(content)
            text = json.dumps(describe(content), ensure_ascii=False, sort_keys=True, indent=0)
            expected.write_text(text + "\n", encoding="utf-8")
            print(f"{blob.name}: written")
        elif not fault:
            print(f"{blob.name}: as it was")
    if broken and not accept:
        print(f"{broken} changed; nothing written over. If it is meant: --accept")
    return 1 if broken and not accept else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

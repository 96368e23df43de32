"""Keys that are forgotten: by tombstones (records of a key without a value), or as ``palearn forget`` asks for."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from palearn.engine.join import Join
from palearn.engine.result_rows import Forgotten
from palearn.engine.summary import Summary
from palearn.engine.validation import Chunk, key_text, order
from palearn.models.counters import LAST_SEEN
from palearn.models.keyed import Models
from palearn.records.keys import Form


def between_tombstones(chunk: Chunk, form: Form, *, exact: bool) -> Iterator[tuple[Chunk, list[Forgotten]]]:
    """Yield the records in pieces, and the tombstones that take effect after each.

    A tombstone takes effect after its key's records before it and before those after it. Those of other keys do not
    mind, so a piece ends only where a key comes again that a tombstone of the piece has named. ``exact``: it ends at
    every tombstone, as keys that leave for others mind how many there are. One without a key is a record like others.
    """
    rows: list[int] = []
    doomed: list[Forgotten] = []
    names: set[str] = set()
    for row in order(chunk).tolist():
        name = key_text(chunk.key[row], form)
        if name in names or (exact and doomed):
            yield chunk.rows(rows), doomed
            rows, doomed, names = [], [], set()
        if chunk.value[row] is not None or not isinstance(name, str):
            rows.append(row)
            continue
        at = None if chunk.time is None else int(chunk.time[row])
        doomed.append(Forgotten(name, chunk.topic[row], int(chunk.partition[row]), int(chunk.offset[row]), at))
        names.add(name)
    yield chunk.rows(rows), doomed


def earlier(models: Models, keys: Mapping[str, int]) -> set[str]:
    """Return those of some keys whose last record is older than a record count of the bucket."""
    known = [key for key in keys if key in models.index]
    return {key for key in known if models.counts[models.index[key], LAST_SEEN] < keys[key]}


def drop_keys(models: Models, join: Join, summary: Summary, names: Collection[str]) -> None:
    """Drop keys that are there: their models, and the fragments that wait, which are counted and not written out."""
    if not names:
        return
    told = len(join.expired)
    pending = join.leave(names)
    del join.expired[told:]
    summary.statuses["pending"] -= pending
    summary.statuses["expired"] += pending
    summary.forgotten += len(names)
    models.keep_keys(np.setdiff1d(np.arange(len(models.keys)), [models.index[name] for name in names]))

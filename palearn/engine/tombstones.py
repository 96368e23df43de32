"""Tombstones: records of a key without a value, which forget the key where that is asked for."""

from collections.abc import Iterator

from palearn.engine.result_rows import Forgotten
from palearn.engine.validation import Chunk, key_text, order
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

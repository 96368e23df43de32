"""Outputs of jobs, written without Spark: buckets learn, and their tables stand as the job lays them out."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from palearn.engine import result_rows
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.engine.summary import Summary
from palearn.tables import schemas
from palearn.tables.store import Store, TableFormat
from tests.streams import Row, chunk

Change = Callable[[pa.Table, int], pa.Table]


class Job:
    """A job of one bucket that writes to a folder; ``change`` makes other metrics of a batch's, e.g. with more columns.

    Parameters
    ----------
    without
        Tables that are not written.
    seconds
        How long the first batches take; of others it is not written down.
    """

    def __init__(
        self,
        out: Path | str,
        plan: BucketConfig,
        *,
        without: Iterable[str] = (),
        change: Change = lambda x, _: x,
        seconds: Sequence[float] = (),
        format: TableFormat = "parquet",
    ) -> None:
        self.plan, self._without, self._change = plan, set(without), change
        self._seconds = dict(enumerate(seconds))
        self._store, self._blob, self._batch = Store(str(out), format, "owner"), None, 0
        self._totals: dict[str, dict[str, int]] = {}

    def run(self, batches: Iterable[Sequence[Row]]) -> None:
        """Learn and write batches, after those that were written before."""
        for rows in batches:
            bucket = Bucket(self.plan, self._blob, self._batch)
            bucket.learn(chunk(rows))
            self._add(bucket.summary)
            written = {name: result_rows.plain(table, name) for name, table in bucket.results().items()}
            totals = pa.Table.from_batches([result_rows.total_rows(self._totals)])
            found = pa.concat_tables([*[written[x] for x in ("metrics",) if x in written], totals])
            written["metrics"] = self._change(found, self._batch)
            written["batches"] = _account(bucket.summary)
            self._write({name: table for name, table in written.items() if name not in self._without})
            self._blob = bucket.to_bytes()
            self._batch += 1

    def _add(self, summary: Summary) -> None:
        for learner in self.plan.learners:
            past = self._totals.get(learner.name, {"n": 0, "mistakes": 0})
            mistakes = summary.mistakes[learner.name]
            self._totals[learner.name] = {
                "n": past["n"] + summary.n,
                "mistakes": past["mistakes"] + mistakes,
                "batch_n": summary.n,
                "batch_mistakes": mistakes,
            }

    def _write(self, written: dict[str, pa.Table]) -> None:
        target = self._store.target(self._batch)
        file = target.name("part-0")
        files = {
            f"{name}/{file}": self._store.folder.write_table(table, *target.place(name), file)
            for name, table in written.items()
        }
        self._store.commit(self._batch, self._totals, files, seconds=self._seconds.get(self._batch))


def _account(summary: Summary) -> pa.Table:
    row = {"records": summary.records, **summary.statuses, "reasons": list(summary.reasons.items())}
    counts = {"keys_evicted": summary.keys_evicted, "features_evicted": summary.features_evicted}
    return pa.Table.from_pylist([row | counts], schemas.BATCHES)

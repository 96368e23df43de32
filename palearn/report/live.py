"""``palearn watch``: what a job has written so far, read while it runs; only batches that are new are read."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from palearn.errors import FileFormatError, shown
from palearn.report.history import FIGURES, Batch, History, error, ratio, window_error, worst
from palearn.report.terminal_table import Column, Sheet, count, percent
from palearn.tables.schemas import STATUSES

#: So many of the newest batches are listed.
LISTED = 6


class Watch:
    """A job's output, watched.

    Parameters
    ----------
    path
        Output folder; it need not be there yet.
    keys
        So many of the keys that are worst now are named.
    """

    def __init__(self, path: str | Path, keys: int = 10) -> None:
        self.path, self._most = str(path), keys
        self._history = History(path)

    def read(self) -> bool:
        """Read what is new; return whether there was anything."""
        try:
            return bool(self._history.read())
        except FileNotFoundError:  # the folder was removed while it was read; it may come again
            self._history = History(self.path)
            return True

    def reading(self) -> dict[str, Any] | None:
        """Return what is there so far, None if no batch is.

        Returns
        -------
        dict
            ``batches`` (how many), ``batch`` (the newest one's number), ``records`` (by status, of all batches and of
            the newest), ``learners`` (errors over all keys: of all records, of each key's last ones, of the newest
            batch), ``no_change`` (its error), ``worst_keys`` (those that the learner ``best`` is worst at now, which is
            in their windows) and ``newest_batches`` with the seconds that they took; null where there is nothing to
            tell.
        """
        found = self._history
        if not found.batches:
            return None
        newest, total = found.batches[-1], found.total
        out: dict[str, Any] = {
            "batches": len(found.batches),
            "batch": newest.number,
            "keys": len(found.keys),
            "records": {"all": _account(total), "newest": _account(newest)},
            "learners": {name: self._learner(name, total, newest) for name in found.learners},
            "newest_batches": self._newest_batches(),
        }
        if found.learners:
            first = total.learners[found.learners[0]]
            out["no_change"] = _known(ratio(first.wrong, first.seen))
            out["best"] = found.best
            out["worst_keys"] = self._worst(found.best)
        return out

    def _learner(self, name: str, total: Batch, newest: Batch) -> dict[str, Any]:
        rows, sums, last = self._history.newest[name], total.learners[name], newest.learners.get(name)
        return {
            "n": sums.n,
            "mistakes": sums.mistakes,
            "error": _known(ratio(sums.mistakes, sums.n)),
            "window_error": _known(window_error(rows)),
            "batch_error": None if last is None else _known(ratio(last.mistakes, last.n)),
            "updates": _known(ratio(sums.updates, sums.seen)),
            "drifts": sums.drifts if self._history.looks_for_drift else None,
        }

    def _worst(self, best: str) -> list[dict[str, Any]]:
        newest = self._history.newest
        names = list(self._history.keys)
        return [
            {
                "key": names[place],
                "n": int(newest[best][place, FIGURES.index("n")]),
                "no_change": _known(error(newest[best][place : place + 1], "wrong")[0]),
                "errors": {name: _known(error(rows[place : place + 1])[0]) for name, rows in newest.items()},
                "window_n": int(newest[best][place, FIGURES.index("window_n")]),
                "window_errors": {name: _known(window_error(rows[place : place + 1])) for name, rows in newest.items()},
            }
            for place in worst(newest[best], self._most, now=True).tolist()
        ]

    def _newest_batches(self) -> list[dict[str, Any]]:
        return [
            {
                "batch": batch.number,
                "records": batch.account["records"] if batch.account else None,
                "seconds": took,
                "rate": batch.account["records"] / took if batch.account and took else None,
                "errors": {name: _known(ratio(x.mistakes, x.n)) for name, x in batch.learners.items()},
            }
            for batch, took in self._history.times(LISTED)
        ]


def follow(watch: Watch, console: Console, every: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show a job's output until Ctrl-C, and look every so many seconds whether there is more.

    On what is no terminal each new reading is printed below the one before.
    """
    watch.read()
    try:
        if not console.is_terminal:
            console.print(view(watch))
            while True:
                sleep(every)
                if watch.read():
                    console.print(view(watch))
        with Live(view(watch), console=console, auto_refresh=False) as live:
            while True:
                sleep(every)
                if watch.read():
                    live.update(view(watch), refresh=True)
    except KeyboardInterrupt:
        return


def once(watch: Watch) -> dict[str, Any]:
    """Return one reading.

    Raises
    ------
    FileFormatError
        There is no batch yet.
    """
    watch.read()
    reading = watch.reading()
    if reading is None:
        raise FileFormatError(f"{watch.path} holds no whole batch yet: is it the output of a palearn job?")
    return reading


def view(watch: Watch) -> Group | Text:
    """Return the newest reading as tables for a terminal."""
    reading = watch.reading()
    if reading is None:
        return Text(f"no batch yet; waiting for the job's first one (Ctrl-C ends): {shown(str(watch.path))}")
    title = f"batch {reading['batch']:,}, the newest of {reading['batches']:,}; keys: {reading['keys']:,}"
    parts: list[Any] = [Text(f"{title}; {shown(str(watch.path))}")]
    if reading["records"]["all"]:
        parts += [Text(), _records_table(reading["records"])]
    if reading["learners"]:
        parts += [Text(), _learners_table(reading)]
    parts += [Text(), _batches_table(reading)]
    if reading["keys"]:
        parts += [Text(), _worst_table(reading)]
    return Group(*parts)


def _records_table(records: dict[str, dict[str, int]]) -> Sheet:
    kinds = ["records", *(status for status in STATUSES if records["all"][status] or records["newest"][status])]
    both = (records["all"], records["newest"])
    columns = [Column(kind, [count(x[kind]) for x in both], rank=rank) for rank, kind in enumerate(kinds)]
    return Sheet((Column("records", ("all batches", "newest batch"), "text"), *columns))


def _learners_table(reading: dict[str, Any]) -> Sheet:
    """Return the learners' errors; their numbers stand for them in the other tables, as in the report."""
    rows = list(reading["learners"].values())
    digits = len(str(len(rows)))
    titles = {"all": "error", "recent": "window_error", "newest": "batch_error", "updates": "updates"}
    columns = [
        Column(
            "error in %",
            ["no change", *reading["learners"]],
            "name",
            marks=[f"{i:{digits}} " for i in range(len(rows) + 1)],
        ),
        *(
            Column(
                title, [percent(reading["no_change"]) if not rank else "", *(percent(x[name]) for x in rows)], rank=rank
            )
            for rank, (title, name) in enumerate(titles.items())
        ),
    ]
    if any(x["drifts"] is not None for x in rows):
        columns.append(Column("drifts", ["", *(count(x["drifts"]) for x in rows)], rank=len(titles)))
    return Sheet(columns)


def _batches_table(reading: dict[str, Any]) -> Sheet:
    batches, learners = reading["newest_batches"], list(reading["learners"])
    first = len(learners) + 1
    return Sheet(
        (
            Column("batch", [f"{x['batch']:,}" for x in batches], "text"),
            Column("records", [count(x["records"]) for x in batches], rank=first),
            Column(
                "seconds", ["-" if x["seconds"] is None else f"{x['seconds']:.1f}" for x in batches], rank=first + 2
            ),
            Column("records/s", [count(x["rate"]) for x in batches], rank=first + 1),
            *_of_learners(reading, [x["errors"] for x in batches]),
        )
    )


def _worst_table(reading: dict[str, Any]) -> Sheet:
    keys = reading["worst_keys"]
    best = list(reading["learners"]).index(reading["best"]) + 1
    return Sheet(
        (
            Column(f"worst keys of {best} now", [x["key"] for x in keys], "name"),
            Column("labelled", [count(x["window_n"]) for x in keys], rank=len(reading["learners"]) + 1),
            *_of_learners(reading, [x["window_errors"] for x in keys]),
        )
    )


def _of_learners(reading: dict[str, Any], errors: Sequence[dict[str, float | None]]) -> list[Column]:
    """Return a column of errors for each learner; where there is no room for all, those of the best ones stay."""
    mistakes = {name: x["mistakes"] for name, x in reading["learners"].items()}
    ranked = sorted(mistakes, key=lambda name: mistakes[name])
    return [
        Column(str(number), [percent(x.get(name), 1) for x in errors], rank=ranked.index(name))
        for number, name in enumerate(mistakes, start=1)
    ]


def _account(batch: Batch) -> dict[str, int]:
    return dict(batch.account)


def _known(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)

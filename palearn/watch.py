"""``palearn watch``: what a job has written so far, read anew while it runs; only batches that are new are read."""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from palearn.bucket import FATES
from palearn.errors import FileFormatError, shown
from palearn.report.history import FIGURES, Batch, History, error, ratio, window_error, worst

#: So many of the newest batches are listed.
LISTED = 6
#: So many characters of a name are shown.
_LONGEST = 28


class Watch:
    """A job's output, watched.

    Parameters
    ----------
    path
        Output folder; it need not be there yet.
    keys
        So many of the keys with the largest errors are named.
    """

    def __init__(self, path: str | Path, keys: int = 10) -> None:
        self.path, self._most = Path(path), keys
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
            ``batches`` (how many), ``batch`` (the newest one's number), ``records`` (by fate, of all batches and of the
            newest), ``learners`` (errors over all keys: of all records, of each key's last ones, of the newest batch),
            ``no_change`` (its error), ``worst_keys`` (of the learner ``best``) and ``newest_batches`` with the seconds
            since the batch before was whole, by the file system's clock; null where there is nothing to tell.
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
            }
            for place in worst(newest[best], self._most).tolist()
        ]

    def _newest_batches(self) -> list[dict[str, Any]]:
        batches = self._history.batches[-LISTED - 1 :]
        times = [_whole_at(self.path, batch.number) for batch in batches]
        between = (None if before is None or now is None else now - before for before, now in pairwise(times))
        seconds = [None, *between]
        return [
            {
                "batch": batch.number,
                "records": batch.account["records"] if batch.account else None,
                "seconds": took,
                "rate": batch.account["records"] / took if batch.account and took and took > 0 else None,
                "errors": {name: _known(ratio(x.mistakes, x.n)) for name, x in batch.learners.items()},
            }
            for batch, took in zip(batches, seconds, strict=True)
        ][-LISTED:]


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
        parts.append(_records_table(reading["records"]))
    if reading["learners"]:
        parts.append(_learners_table(reading))
    parts.append(_batches_table(reading))
    if reading["keys"]:
        parts.append(_worst_table(reading))
    return Group(*parts)


def _records_table(records: dict[str, dict[str, int]]) -> Table:
    kinds = ["records", *(fate for fate in FATES if records["all"][fate] or records["newest"][fate])]
    table = _table("records", kinds)
    for title, counts in (("all batches", records["all"]), ("newest batch", records["newest"])):
        table.add_row(title, *(f"{counts[kind]:,}" for kind in kinds))
    return table


def _learners_table(reading: dict[str, Any]) -> Table:
    """Return the learners' errors; their numbers stand for them in the other tables, as in the report."""
    drift = any(x["drifts"] is not None for x in reading["learners"].values())
    titles = ["all", "recent", "newest", "updates", *["drifts"] * drift]
    table = _table("error in %", titles)
    table.add_row("0 no change", _percent(reading["no_change"]), *[""] * (len(titles) - 1))
    for number, (name, x) in enumerate(reading["learners"].items(), start=1):
        figures = (x["error"], x["window_error"], x["batch_error"], x["updates"])
        table.add_row(_name(f"{number} {name}"), *map(_percent, figures), *([_count(x["drifts"])] if drift else []))
    return table


def _worst_table(reading: dict[str, Any]) -> Table:
    numbers = [str(number) for number in range(len(reading["learners"]) + 1)]
    table = _table(f"worst keys of {list(reading['learners']).index(reading['best']) + 1}", ["labelled", *numbers])
    for row in reading["worst_keys"]:
        errors = (row["no_change"], *row["errors"].values())
        table.add_row(_name(row["key"]), _count(row["n"]), *(_percent(share, 1) for share in errors))
    return table


def _batches_table(reading: dict[str, Any]) -> Table:
    learners = reading["learners"]
    table = _table("batch", ["records", "seconds", "records/s", *map(str, range(1, len(learners) + 1))])
    for x in reading["newest_batches"]:
        counts = (_count(x["records"]), "-" if x["seconds"] is None else f"{x['seconds']:.1f}", _count(x["rate"]))
        table.add_row(f"{x['batch']:,}", *counts, *(_percent(x["errors"].get(name), 1) for name in learners))
    return table


def _table(first: str, others: list[str]) -> Table:
    columns = (Column(title, justify="right", no_wrap=True) for title in others)
    return Table(Column(first, min_width=len(first)), *columns, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _name(text: str) -> Text:
    """Return a name as text without markup."""
    text = shown(text)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return Text(text, no_wrap=True, overflow="ellipsis")


def _percent(share: float | None, digits: int = 2) -> str:
    return "-" if share is None else f"{100 * share:.{digits}f}"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _account(batch: Batch) -> dict[str, int]:
    return dict(batch.account)


def _known(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)


def _whole_at(path: Path, number: int) -> float | None:
    """Return when a batch was whole, in seconds; None if that is not written down (any more)."""
    try:
        return (path / "_palearn" / "batches" / f"{number}.json").stat().st_mtime
    except FileNotFoundError:
        return None

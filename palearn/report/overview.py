"""From the output tables to what people look at: sums, an error table, a plot."""

from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Column, Table

from palearn import plots
from palearn.errors import FileFormatError, shown
from palearn.report.history import FIGURES, History, error, of_keys, ratio


def history(path: str | Path) -> History:
    """Return what the output of a job says, read whole.

    Raises
    ------
    FileFormatError
        There is no metrics table, or no batch in it yet.
    """
    found = History(path)
    found.read()
    if not found.learners:
        raise FileFormatError(f"{path} holds no table 'metrics': is it the output of a palearn job that wrote a batch?")
    return found


def summary(path: str | Path) -> dict[str, Any]:
    """Return what a job did: records by fate, each learner over all keys, and each key's error.

    Returns
    -------
    dict
        ``records`` (accounts summed), ``learners: {name: {n, mistakes, error}}`` and
        ``keys: {key: {"n", "baseline_error", "errors": {learner: error}}}``.
    """
    return summed(history(path))


def summed(found: History) -> dict[str, Any]:
    """Return the :func:`summary` of a history."""
    total = found.total
    out: dict[str, Any] = {"records": dict(total.account)} if total.account else {}
    out["learners"] = {
        name: {"n": x.n, "mistakes": x.mistakes, "error": _number(ratio(x.mistakes, x.n))}
        for name, x in total.learners.items()
    }
    newest = found.newest
    first = next(iter(newest.values()))
    errors = {name: error(rows) for name, rows in newest.items()}
    base = error(first, "wrong")
    out["keys"] = {
        key: {
            "n": int(first[place, FIGURES.index("n")]),
            "baseline_error": _number(base[place]),
            "errors": {name: _number(errors[name][place]) for name in newest},
        }
        for key, place in sorted(found.keys.items())
    }
    return out


def baseline(report: dict[str, Any]) -> float | None:
    """Return the no-change baseline's error over all keys of a :func:`summary`."""
    counted = [(k["n"], k["baseline_error"]) for k in report["keys"].values() if k["baseline_error"] is not None]
    total = sum(n for n, _ in counted)
    return sum(n * error for n, error in counted) / total if total else None


def fates(report: dict[str, Any]) -> str:
    """Return a :func:`summary`'s records by fate as a line."""
    return ", ".join(f"{count:,} {name}" for name, count in report.get("records", {}).items() if count)


def error_table(report: dict[str, Any], most: int = 25) -> Table:
    """Return a :func:`summary`'s errors as a table: the ``most`` largest keys, and all keys together."""
    names = list(report["learners"])
    largest = sorted(report["keys"].items(), key=lambda item: -item[1]["n"])
    widest = max((len(key) for key, _ in largest[:most]), default=0)
    titles = ("labelled", "no change", *names)
    columns = (Column(title, justify="right") for title in titles)
    table = Table(
        Column("key", no_wrap=True, min_width=min(widest, 32), max_width=32),
        *columns,
        box=box.SIMPLE,
        title="error in %",
    )
    for key, entry in largest[:most]:
        errors = (entry["baseline_error"], *(entry["errors"].get(name) for name in names))
        table.add_row(shown(key), f"{entry['n']:,}", *map(_percent, errors))
    if len(largest) > most:
        table.add_row(f"… {len(largest) - most:,} more keys")
    table.add_section()
    n = max((x["n"] for x in report["learners"].values()), default=0)
    errors = (baseline(report), *(x["error"] for x in report["learners"].values()))
    table.add_row("all keys", f"{n:,}", *map(_percent, errors))
    return table


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:.2f}"


def plot(found: History, file: str | Path) -> None:
    """Draw the error over time to ``file`` (PNG or SVG): all keys batch by batch, and the largest key's window.

    Raises
    ------
    FileFormatError
        No record of any key was scored yet.
    """
    if not found.keys:
        raise FileFormatError(f"{found.path} has no key whose error could be drawn: no record was scored yet")
    largest = max(found.keys, key=lambda key: next(iter(found.newest.values()))[found.keys[key], FIGURES.index("n")])
    mine = of_keys(found.path, [largest])[largest].to_pandas()
    with plots.figure(file, columns=2, width=11) as (left, right):
        grey = {"color": "#666666", "lw": 1}
        first = [batch.learners[found.learners[0]] for batch in found.batches]
        seen = np.cumsum([x.seen for x in first])
        left.plot(seen, ratio(np.cumsum([x.wrong for x in first]), seen), label="no change (baseline)", **grey)
        for name, style in zip(found.learners, plots.styles(), strict=False):
            sums = [batch.learners[name] for batch in found.batches]
            at = np.cumsum([x.n for x in sums])
            left.plot(at, ratio([x.mistakes for x in sums], [x.n for x in sums]), label=name, **style)
            rows = mine[mine["learner"] == name]
            right.plot(rows["n"], rows["window_error"], **style)
        left.set(
            title="All keys: error in each batch",
            xlabel="labelled records",
            ylabel="error (share of mistakes)",
        )
        any_learner = mine[mine["learner"] == found.learners[0]]
        right.plot(any_learner["n"], any_learner["baseline_error"], **grey)
        window = int(mine["window_n"].max())
        right.set(
            title=f"Key {shown(largest):.60}: error over its last {window:,} records",
            xlabel="labelled records of the key",
        )
        left.set_ylim(bottom=0)


def _number(value: Any) -> float | None:
    return None if value is None or np.isnan(value) else float(value)

"""From the output tables to what people look at: sums, tables of errors, a plot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group
from rich.text import Text

from palearn.errors import FileFormatError, shown
from palearn.report import plots
from palearn.report.history import FIGURES, History, Sums, error, of_keys, pooled, ratio
from palearn.report.terminal_table import Column, Sheet, count, names, percent

#: A learner's name has so much room in a sentence and at the head of a column.
_TITLE = 24


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
    """Return what a job did: records by status, each learner over all keys, and each key's error.

    Returns
    -------
    dict
        ``records`` (summed over batches), ``learners: {name: {n, mistakes, error}}``, ``no_change`` (its error) and
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
    any_learner = total.learners[found.learners[0]]
    out["no_change"] = _number(ratio(any_learner.wrong, any_learner.seen))
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


def statuses(report: dict[str, Any]) -> str:
    """Return a :func:`summary`'s records by status as a line."""
    return ", ".join(f"{count:,} {name}" for name, count in report.get("records", {}).items() if count)


def reasons(found: History) -> str:
    """Return why records were rejected, the most frequent reason first, as a line; empty: no record was."""
    counts = sorted(found.total.reasons.items(), key=lambda item: (-item[1], item[0]))
    if not counts:
        return ""
    return f"rejected: {', '.join(f'{n:,} {reason}' for reason, n in counts)} (table rejected has each with a sentence)"


def errors(report: dict[str, Any], most: int = 25) -> Group:
    """Return a :func:`summary`'s errors for a terminal: of the learners, the best first, and of the largest keys.

    Learners have numbers, as on the page: in the order of the configuration, and 0 predicts no change.
    """
    base, learners = report["no_change"], list(report["learners"].items())
    if all(x["error"] is None for _, x in learners):
        return Group(Text("no record had a label yet: there are no errors to show"))
    shares = [x["error"] for _, x in learners]  # a learner that was added late may have none yet
    ranked = sorted(range(1, len(learners) + 1), key=lambda i: (shares[i - 1] is None, shares[i - 1]))
    best = learners[ranked[0] - 1][1]
    title = names(list(report["learners"]), _TITLE)[ranked[0] - 1]
    told = f"{best['n']:,} labelled; best: {ranked[0]} {title}, error {percent(best['error'])} %"
    parts: list[Any] = [Text(f"{told}; no change: {percent(base)} %\n"), _learners(report, base)]
    if report["keys"]:
        parts += [Text(), _keys(report, ranked, most)]
    if len(report["keys"]) > most:
        parts.append(Text(f"and {len(report['keys']) - most:,} smaller keys"))
    return Group(*parts)


def _learners(report: dict[str, Any], base: float | None) -> Sheet:
    rows = [("no change", base, "")]
    rows += [(name, x["error"], count(x["mistakes"])) for name, x in report["learners"].items()]
    order = sorted(range(len(rows)), key=lambda number: (rows[number][1] is None, rows[number][1], number == 0))
    named, shares, mistakes = zip(*(rows[number] for number in order), strict=True)
    digits = len(str(len(rows) - 1))
    return Sheet(
        (
            Column("all keys", named, "name", marks=[f"{number:{digits}} " for number in order]),
            Column("error in %", [percent(share) for share in shares]),
            Column("mistakes", mistakes, rank=1),
        )
    )


def _keys(report: dict[str, Any], ranked: Sequence[int], most: int) -> Sheet:
    """Return the largest keys' errors; where there is no room for all learners, those of the best ones."""
    keys = sorted(report["keys"].items(), key=lambda item: -item[1]["n"])[:most]
    columns = [
        Column("key", [key for key, _ in keys], "name"),
        Column("labelled", [count(x["n"]) for _, x in keys], rank=2),
        Column("0 no change", [percent(x["baseline_error"]) for _, x in keys], rank=1, short="0"),
    ]
    titles = names(list(report["learners"]), _TITLE)
    for number, (name, title) in enumerate(zip(report["learners"], titles, strict=True), start=1):
        shares = [percent(x["errors"].get(name)) for _, x in keys]
        place = ranked.index(number)
        columns.append(Column(f"{number} {title}", shares, rank=place + 2 if place else 0, short=str(number)))
    return Sheet(columns, "palearn report --json has all")


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
    mine = of_keys(found.tables, [largest])[largest].to_pandas()
    with plots.figure(file, columns=2, width=11) as (left, right):
        grey = {"color": "#666666", "lw": 1}
        steps = pooled(found.batches, found.learners[0])
        first = [step.learners.get(found.learners[0], Sums()) for step in steps]
        seen = np.cumsum([x.seen for x in first])
        left.plot(seen, ratio(np.cumsum([x.wrong for x in first]), seen), label="no change (baseline)", **grey)
        for name, style in zip(found.learners, plots.styles(), strict=False):
            sums = [step.learners.get(name, Sums()) for step in steps]
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
        for axes in (left, right):
            axes.xaxis.set_major_formatter(plots.thousands())


def _number(value: Any) -> float | None:
    return None if value is None or np.isnan(value) else float(value)

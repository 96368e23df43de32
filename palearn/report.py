"""From the output tables to what people look at: sums, an error table, a model's strongest weights, a plot."""

from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Column, Table

from palearn import plots, tables
from palearn.errors import shown


def summary(path: str | Path) -> dict[str, Any]:
    """Return what a job did: records by fate, each learner over all keys, and each key's error.

    Returns
    -------
    dict
        ``records`` (accounts summed), ``learners: {name: {n, mistakes, error}}`` and
        ``keys: {key: {"n", "baseline_error", "errors": {learner: error}}}``.
    """
    rows = tables.metrics(path)
    order = {name: place for place, name in enumerate(rows["learner"].drop_duplicates())}
    newest = tables.newest(rows).sort_values("learner", key=lambda names: names.map(order), kind="stable")
    overall, by_key = newest[newest["key"].isna()], newest[newest["key"].notna()]
    learners = {
        str(row.learner): {"n": int(row.n), "mistakes": int(row.mistakes), "error": _number(row.error)}
        for row in overall.itertuples()
    }
    keys: dict[str, Any] = {}
    for row in by_key.itertuples():
        entry = keys.setdefault(row.key, {"n": int(row.n), "baseline_error": _number(row.baseline_error), "errors": {}})
        entry["errors"][row.learner] = _number(row.error)
    out = {"learners": learners, "keys": keys}
    if (Path(path) / "accounts").is_dir():
        accounts = tables.read(path, "accounts").select_dtypes("number").sum()
        out = {"records": {str(k): int(v) for k, v in accounts.items() if k != "batch_id"}, **out}
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
    table = Table(Column("key", no_wrap=True, min_width=min(widest, 32)), *columns, box=box.SIMPLE, title="error in %")
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


def strongest(path: str | Path, key: str, learner: str, top: int = 10) -> list[tuple[str, str, float]]:
    """Return a model's ``top`` largest weights as (label, feature, weight), largest first.

    Of a binary model the label is the positive one.
    """
    models = tables.latest_models(path)
    chosen = models[(models["key"] == key) & (models["learner"] == learner)]
    if chosen.empty:
        return []
    row = chosen.iloc[0]
    names, labels = list(row["features"]), list(row["labels"])
    weights = np.asarray(row["weights"]).reshape(-1, len(names)) if names else np.zeros((0, 0))
    blocks = labels[-1:] if len(weights) == 1 else labels
    rows = [(str(blocks[b]), names[f], float(weights[b, f])) for b in range(len(weights)) for f in range(len(names))]
    return sorted(rows, key=lambda row: -abs(row[2]))[:top]


def plot(path: str | Path, file: str | Path) -> None:
    """Draw the error over time to ``file`` (PNG or SVG): all keys batch by batch, and the largest key's window."""
    frame = tables.metrics(path)
    overall = frame[frame["key"].isna()].sort_values("batch_id")
    by_key = frame[frame["key"].notna()]
    with plots.figure(file, columns=2, width=11) as (left, right):
        base = _baseline_curve(by_key)
        left.plot(base.index, base.to_numpy(), color="#666666", lw=1, label="no change (baseline)")
        for (name, rows), style in zip(overall.groupby("learner", sort=False), plots.styles(), strict=False):
            left.plot(rows["n"], rows["batch_error"], label=str(name), **style)
        left.set(
            title="All keys: error in each batch",
            xlabel="labelled records",
            ylabel="error (share of mistakes)",
        )
        largest = by_key.loc[by_key["n"].idxmax(), "key"]
        mine = by_key[by_key["key"] == largest].sort_values("batch_id")
        for (name, _), style in zip(overall.groupby("learner", sort=False), plots.styles(), strict=False):
            rows = mine[mine["learner"] == name]
            right.plot(rows["n"], rows["window_error"], **style)
        any_learner = mine[mine["learner"] == mine["learner"].iloc[0]]
        right.plot(any_learner["n"], any_learner["baseline_error"], color="#666666", lw=1)
        window = int(mine["window_n"].max())
        right.set(
            title=f"Key {shown(largest):.60}: error over its last {window:,} records",
            xlabel="labelled records of the key",
        )
        left.set_ylim(bottom=0)


def _baseline_curve(by_key: Any) -> Any:
    """Return the baseline's cumulative error over all keys, by labelled records so far."""
    first = by_key[by_key["learner"] == by_key["learner"].iloc[0]]
    wrong = first.assign(wrong=first["baseline_error"] * first["n"])
    wide = wrong.pivot_table(index="batch_id", columns="key", values=["n", "wrong"]).ffill().fillna(0)
    n = wide["n"].sum(axis=1)
    curve = wide["wrong"].sum(axis=1) / n
    curve.index = n
    return curve


def _number(value: Any) -> float | None:
    return None if value is None or np.isnan(value) else float(value)

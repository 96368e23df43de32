"""The report as one page: no script, nothing from the network, the same bytes for the same folder."""

import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from palearn.errors import FileFormatError, shown
from palearn.models.counters import CERTAIN
from palearn.report import charts, plots
from palearn.report.history import (
    FIGURES,
    Batch,
    History,
    Sums,
    error,
    of_keys,
    pooled,
    ratio,
    window_error,
    worst,
)
from palearn.tables import schemas
from palearn.tables.schemas import STATUSES
from palearn.types import FloatArray

#: Charts over all keys, and of one key, have at most so many points, and so have the tables of their figures.
POINTS, KEY_POINTS = 100, 40
WORST = 10
#: Of a row's ``params``, what all learners of a job have in common.
_SHARED = {"task", "bias", "positive", "views", "max_bytes", "max_features"}
_DASHES = {"-": "none", "--": "6 3", "-.": "9 3 2 3", ":": "2 3"}
_LABELLED, _BATCH = "labelled records", "batch"


def page(found: History, file: str | Path) -> None:
    """Write the report of a job's output as HTML; what tables say that are not there is left out.

    Raises
    ------
    FileFormatError
        The file cannot be written.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("palearn", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"name": _name, "count": _count, "percent": _percent, "number": _number, "drawing": Markup}
    text = environment.get_template("page.html").render(_content(found))
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise FileFormatError(f"{file} cannot be written: {problem.strerror}") from None


def _content(found: History) -> dict[str, Any]:
    """Return what the template shows."""
    total, steps = found.total, found.binned(POINTS)
    judged = pooled(steps, found.learners[0])
    out: dict[str, Any] = {
        "title": found.path.rstrip("/").rpartition("/")[2],
        "folder": found.path,
        "topics": _topics(found),
        "version": metadata.version("palearn"),
        "pooled": len(judged) < len(steps),
        "labelled": total.learners[found.learners[0]].n,
        "batches": len(found.batches),
        "last": found.batches[-1].number,
        "in_a_step": -(-len(found.batches) // len(steps)),
        "keys": len(found.keys),
        "account": total.account,
        "statuses": [
            (status, total.account[status], ratio(total.account[status], total.account["records"]))
            for status in STATUSES
        ],
        "reasons": _reasons(found, total),
        "expired": _expired(found),
        "records": _records(steps) if total.account else None,
        "times": _times(found),
    }
    if out["labelled"]:
        out |= {
            "marks": [_mark(style) for style in charts.styles(len(found.learners))],
            "names": ["no change", *found.learners],
            "learners": _learners(found, total),
            "options": _options(found),
            "errors": _errors(found, judged),
            "quantiles": _quantiles(found) if len(found.keys) > 1 else None,
            "worst": _worst(found),
            "views": _views(found, steps),
            "drift": _drift(found, total, steps) if found.looks_for_drift else None,
        }
    return out


def _topics(found: History) -> list[str]:
    """Return the topics of the newest batch."""
    batches = found.tables.batches("batches")
    if not batches:
        return []
    rows = found.tables.columns("batches", pa.schema([schemas.BATCHES.field("offsets")]), batch=batches[-1])
    offsets = rows["offsets"][0].as_py() if rows.num_rows else None
    return sorted({place["topic"] for place in offsets or ()})


def _learners(found: History, total: Batch) -> list[dict[str, Any]]:
    """Return how no change and each learner did over all keys."""
    sums = [total.learners[name] for name in found.learners]
    base = float(ratio(sums[0].wrong, sums[0].seen))
    errors = [float(ratio(x.mistakes, x.n)) for x in sums]
    largest = max(base, *errors) or 1.0
    out: list[dict[str, Any]] = [{"error": base, "bar": base / largest}]
    for x, share, rows in zip(sums, errors, found.newest.values(), strict=True):
        n, kappa = rows[:, FIGURES.index("n")], rows[:, FIGURES.index("kappa")]
        out.append(
            {
                "n": x.n,
                "mistakes": x.mistakes,
                "error": share,
                "bar": share / largest,
                "window": window_error(rows),
                "kappa": ratio(np.nansum(kappa * n), np.nansum(np.where(np.isnan(kappa), 0, n))),
                "updates": ratio(x.updates, x.seen),
                "better": int(np.count_nonzero(error(rows) < error(rows, "wrong"))),
            }
        )
    return out


def _options(found: History) -> list[tuple[str, str]]:
    """Return each learner's algorithm and options, where there are models."""
    batches = found.tables.batches("models")
    if not batches:
        return []
    schema = pa.schema([schemas.MODELS.field(name) for name in ("learner", "algorithm", "params")])
    rows = found.tables.columns("models", schema, batch=batches[-1])
    known = {row["learner"]: row for row in rows.group_by(schema.names).aggregate([]).to_pylist()}
    return [
        (
            known[name]["algorithm"],
            ", ".join(f"{k}={v}" for k, v in json.loads(known[name]["params"]).items() if k not in _SHARED),
        )
        if name in known
        else ("", "")
        for name in found.learners
    ]


def _sums(steps: Sequence[Batch], name: str, figure: str) -> FloatArray:
    """Return a figure of a learner's sums, step by step."""
    return np.array([getattr(step.learners.get(name, Sums()), figure) for step in steps], np.float64)


def _errors(found: History, steps: list[Batch]) -> dict[str, Any]:
    """Return the charts of all keys over time, and the figures of them."""
    names, first = found.learners, found.learners[0]
    n, wrong, seen = (_sums(steps, first, figure) for figure in ("n", "wrong", "seen"))
    at = np.cumsum(n)
    mistakes = [_sums(steps, name, "mistakes") for name in names]
    each = [ratio(wrong, seen), *(ratio(x, n) for x in mistakes)]
    so_far = [ratio(np.cumsum(wrong), np.cumsum(seen)), *(ratio(np.cumsum(x), at) for x in mistakes)]
    updates = [ratio(_sums(steps, name, "updates"), _sums(steps, name, "seen")) for name in names]
    return {
        "each": charts.lines("error of each learner, step by step", _numbered(at, each), _LABELLED),
        "so_far": charts.lines("error of each learner so far", _numbered(at, so_far), _LABELLED),
        "updates": charts.lines(
            "share of labelled records that changed the model", _numbered(at, updates, first=1), _LABELLED
        ),
        "rows": [
            (step.number, int(at[i]), [x[i] for x in each], [x[i] for x in so_far], [x[i] for x in updates])
            for i, step in enumerate(steps)
        ],
    }


def _numbered(at: FloatArray, heights: Sequence[FloatArray], first: int = 0) -> list[charts.Line]:
    return [(number, at, height) for number, height in enumerate(heights, start=first)]


def _quantiles(found: History) -> dict[str, Any]:
    """Return how the keys' errors are spread: of no change, and of each learner."""
    newest = list(found.newest.values())
    errors = [error(newest[0], "wrong"), *(error(rows) for rows in newest)]
    rows = [np.quantile(x[np.isfinite(x)], charts.QUANTILES) for x in errors]
    return {"chart": charts.boxes("error over keys of each learner", rows, "error of a key"), "rows": rows}


def _worst(found: History) -> dict[str, Any]:
    """Return the keys that the best learner is worst at over all their records, each with its course."""
    newest, places = found.newest, list(found.keys)
    chosen = worst(newest[found.best], WORST).tolist()
    courses = of_keys(found.tables, [places[place] for place in chosen])
    first = newest[found.learners[0]]
    errors = np.column_stack([error(first[chosen], "wrong"), *(error(rows[chosen]) for rows in newest.values())])
    rows = [
        {
            "key": places[place],
            "n": first[place, FIGURES.index("n")],
            "errors": errors[i],
            **_course(found, courses[places[place]]),
        }
        for i, place in enumerate(chosen)
    ]
    window = np.nanmax(first[:, FIGURES.index("window_n")])
    return {"best": found.learners.index(found.best) + 1, "rows": rows, "window": window, "certain": CERTAIN}


def _course(found: History, rows: pa.Table) -> dict[str, Any]:
    """Return a key's error over its window, batch by batch, as a chart and as figures."""
    learners, course = np.asarray(rows["learner"]), []
    for name in found.learners:
        mine = rows.filter(pa.array(learners == name))
        some = np.unique(np.linspace(0, mine.num_rows - 1, min(KEY_POINTS, mine.num_rows)).round().astype(np.int64))
        course.append(mine.take(pa.array(some)))
    at = course[0]["n"].to_numpy().astype(np.float64)
    heights = [course[0]["baseline_error"].to_numpy(), *(x["window_error"].to_numpy() for x in course)]
    lines = _numbered(at, heights)
    chart = charts.lines("error of the key over its last records", lines, f"{_LABELLED} of the key", small=True)
    return {"chart": chart, "steps": [(n, [height[i] for height in heights]) for i, n in enumerate(at)]}


def _reasons(found: History, total: Batch) -> list[dict[str, Any]]:
    """Return why records were rejected, the most frequent reason first, with one record's sentence."""
    counts, examples = dict(total.reasons), {}
    if found.tables.batches("rejected"):
        names = ("topic", "partition", "offset", "reason", "detail")
        rows = found.tables.columns("rejected", pa.schema([schemas.REJECTED.field(name) for name in names]))
        grouped = rows.group_by("reason", use_threads=False).aggregate(
            [("detail", "count"), *((name, "first") for name in names if name != "reason")]
        )
        examples = {row["reason"]: row for row in grouped.to_pylist()}
        counts = counts or {reason: row["detail_count"] for reason, row in examples.items()}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": reason, "count": n, "example": examples.get(reason)} for reason, n in ordered]


def _expired(found: History) -> list[tuple[str, int]]:
    """Return by which bound parts left that had waited, and how many."""
    if not found.tables.batches("expired"):
        return []
    rows = found.tables.columns("expired", pa.schema([schemas.EXPIRED.field("reason")]))
    counts = [(x["values"], x["counts"]) for x in rows["reason"].value_counts().to_pylist()]
    return sorted(counts, key=lambda item: (-item[1], item[0]))


def _records(steps: list[Batch]) -> dict[str, Any]:
    """Return how many records came and were rejected, and how many wait, step by step."""
    numbers = np.array([step.number for step in steps], np.float64)
    came, rejected, pending = (
        np.array([step.account[name] for step in steps], np.float64) for name in ("records", "rejected", "pending")
    )
    return {
        "chart": charts.lines("records of each step", [(1, numbers, came)], _BATCH, "count"),
        "pending": charts.lines("pending fragments", [(1, numbers, np.cumsum(pending))], _BATCH, "count")
        if pending.any()
        else None,
        "rows": list(zip(numbers.astype(int), came, rejected, np.cumsum(pending), strict=True)),
    }


def _times(found: History) -> dict[str, Any] | None:
    """Return how long the newest batches took, and their records a second; None where that is not known."""
    known = [(batch, seconds) for batch, seconds in found.times(POINTS) if seconds]
    if not known:
        return None
    numbers = np.array([batch.number for batch, _ in known], np.float64)
    seconds = np.array([took for _, took in known])
    rates = np.array([batch.account["records"] if batch.account else np.nan for batch, _ in known]) / seconds

    def chart(label: str, heights: FloatArray, kind: str) -> str:
        return charts.lines(label, [(1, numbers, heights)], _BATCH, kind)

    counts = np.array([batch.account["records"] if batch.account else np.nan for batch, _ in known])
    known_rates = bool(np.isfinite(rates).any())
    # A batch of a few records says nothing of the rate.
    large = counts >= 0.05 * np.nanmax(counts) if known_rates else np.zeros(len(known), bool)
    return {
        "seconds": chart("seconds of each batch", seconds, "number"),
        "rates": chart("records a second", np.where(large, rates, np.nan), "count") if known_rates else None,
        "rows": list(zip(numbers.astype(int), seconds, rates, strict=True)),
    }


def _views(found: History, steps: list[Batch]) -> dict[str, Any] | None:
    """Return how far the views of learners of views are apart; None where there are none."""
    column = FIGURES.index("view_difference")
    numbers = [i for i, rows in enumerate(found.newest.values(), start=1) if np.isfinite(rows[:, column]).any()]
    if not numbers:
        return None
    at = np.cumsum(_sums(steps, found.learners[0], "n"))
    means = [
        ratio(_sums(steps, found.learners[i - 1], "difference"), _sums(steps, found.learners[i - 1], "seen"))
        for i in numbers
    ]
    return {
        "chart": charts.lines(
            "difference between the scores of views", [(i, at, x) for i, x in zip(numbers, means, strict=True)],
            _LABELLED, "number",
        ),
        "numbers": numbers,
        "rows": [(step.number, int(at[i]), [x[i] for x in means]) for i, step in enumerate(steps)],
    }  # fmt: skip


def _drift(found: History, total: Batch, steps: list[Batch]) -> dict[str, Any]:
    """Return where drift was seen: over time, of each learner, and the newest events."""
    numbers = np.array([step.number for step in steps], np.float64)
    counts = [np.cumsum(_sums(steps, name, "drifts")) for name in found.learners]
    return {
        "chart": charts.lines("how often drift was seen so far", _numbered(numbers, counts, 1), _BATCH, "count"),
        "totals": [total.learners[name].drifts for name in found.learners],
        "events": [(*event[:2], found.learners.index(event.learner) + 1, event.n) for event in reversed(found.drifts)],
        "rows": [(step.number, [int(x[i]) for x in counts]) for i, step in enumerate(steps)],
    }


def _mark(style: dict[str, Any]) -> dict[str, str]:
    return {"colour": plots.variable(style["color"]), "dashes": _DASHES[style["ls"]], "width": f"{style['lw'] + 0.4:g}"}


def _name(text: str, most: int = 80) -> str:
    """Return a name as a page may have it: what does not print is written out, and it is not endless."""
    text = shown(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _count(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:,.0f}"


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{100 * value:.2f}"

"""``evaluate`` and ``search``: learners on files, without Spark and Kafka."""

import atexit
import gc
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
import yaml

from palearn.cli.reading import column_kinds, inputs, reads_files
from palearn.cli.shared import (
    SHIPPED,
    Json,
    app,
    assignments,
    console,
    print_json,
    print_rows,
    progress,
    save,
    usage,
    value_of,
)
from palearn.engine.summary import rejections
from palearn.errors import FileFormatError, LearnerError, shown
from palearn.files.options import ReadOptions
from palearn.learners import LEARNERS
from palearn.models.counters import certain_error
from palearn.report.terminal_table import Column, Sheet, count

if TYPE_CHECKING:
    from palearn.evaluate.examples import Examples
    from palearn.evaluate.grid_search import Tried
    from palearn.evaluate.prequential import Comparison
    from palearn.learners import Learner
    from palearn.models.keyed import Models
    from palearn.models.state import Settings

File = Annotated[str, typer.Argument(help=f"A file of examples, - for standard input, or {SHIPPED}.")]
Task = Annotated[str, typer.Option(help="binary or multiclass.")]
Bias = Annotated[bool, typer.Option(help="Add a constant feature.")]
Positive = Annotated[str | None, typer.Option(help="Label of the positive class, where labels are text.")]
Tie = Annotated[str, typer.Option(help="Class of a score of exactly 0: negative or positive.")]
Views = Annotated[str | None, typer.Option(help="Names of the views, with commas.")]
#: Of a key: its name, examples, mistakes and updates.
_Key = tuple[str, int, int, int]


@app.command()
@reads_files
def evaluate(
    file: File,
    learner: Annotated[list[str], typer.Option(help=f"One or several of {', '.join(LEARNERS)}.")] = ["arow"],  # noqa: B006
    param: Annotated[
        list[str], typer.Option("-p", "--param", help="Hyper-parameter of all that have it, or of one: -p pa1.C=0.1")
    ] = [],  # noqa: B006
    task: Task = "binary",
    bias: Bias = True,
    positive: Positive = None,
    tie: Tie = "negative",
    drift: Annotated[
        str | None,
        typer.Option(help="note, restart or relax where the error rises; or {action: restart, threshold: 20}"),
    ] = None,
    views: Views = None,
    epochs: Annotated[int, typer.Option(help="Passes over the file.", min=1)] = 1,
    shuffle: Annotated[int | None, typer.Option(help="Seed of a random order.")] = None,
    repeats: Annotated[
        int, typer.Option(help="So many random orders (with --shuffle): mean and deviation.", min=1)
    ] = 1,
    holdout: Annotated[Path | None, typer.Option(help="A file that is scored in the end, not learned.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the error so far to this PNG or SVG.")] = None,
    *,
    reading: ReadOptions,
    json: Json = False,
) -> None:
    """Test-then-train on a file in this process; no Spark, no Kafka."""
    from palearn.evaluate import prequential as trials
    from palearn.evaluate.examples import Examples
    from palearn.files.text_lines import STDIN
    from palearn.models.counters import N_SEEN

    # The interpreter's last collection would look at all of numba's objects, for a fifth of the whole time.
    atexit.register(gc.freeze)
    if repeats > 1 and shuffle is None:
        usage("--repeats are random orders: give the first one's seed with --shuffle")
    chosen = _learners(learner, assignments(param), task, tie, drift)
    settings = _settings(task, bias, positive, views)
    (path, *_), reading = inputs([file], reading.but(views=bool(settings.views)))
    if repeats > 1 and path == STDIN:
        usage("standard input can be read once: write it to a file for --repeats")
    kinds = column_kinds(path, reading, quiet=json)
    examples = Examples(path, reading, epochs, shuffle)
    passes = [
        _watched(
            examples._replace(shuffle=None if shuffle is None else shuffle + i), settings, chosen, plot is not None
        )
        for i in range(repeats)
    ]
    report = _report(passes, per_key=reading.key is not None)
    used = report["pending"] or report["duplicate"] or report["expired"] or passes[-1].models.counts[:, N_SEEN].any()
    if report["rejected"] and not used:
        fault = min((x.offset, x.where, reason, x.detail) for reason, x in passes[-1].summary.examples.items())
        sentence = f"{fault[1]}: {fault[2]}: {fault[3]}"
        raise FileFormatError(f"{file}: none of its {report['rejected']:,} records can be used; {sentence}")
    if holdout is not None:
        alike = reading.but(columns={}, known=kinds or None)
        test = examples._replace(source=holdout, epochs=1, shuffle=None, reading=alike)
        report["holdout"] = trials.held_out(passes[-1].models, test)
    if json:
        print_json(report if len(chosen) > 1 else _single(report))
    else:
        _show(report, passes[-1], keyed=reading.key is not None)
    if plot is not None:  # last: where it cannot be drawn, the figures are there
        from palearn.report import plots

        plots.errors_so_far(passes[-1].curve, [x.name for x in chosen], plot)
    if report["problems"]:
        raise typer.Exit(1)


def _settings(task: str, bias: bool, positive: str | None, views: str | None) -> "Settings":
    """Return what the learners share; ``views`` are separated by commas."""
    from palearn.evaluate.prequential import settings_of

    return settings_of(task=task, positive=positive, bias=bias, views=views.split(",") if views else ())


def _learners(names: list[str], params: dict[str, Any], task: str, tie: str, drift: str | None) -> "list[Learner]":
    """Return the learners, each with the parameters that it has; ``NAME.PARAMETER`` is one learner's own."""
    from palearn.learners import Learner

    if len(set(names)) < len(names):
        usage("give each --learner once; palearn search tries one with many hyper-parameters")
    options: dict[str, dict[str, Any]] = {name: {} for name in names}
    for given, value in params.items():
        owner, dot, parameter = given.rpartition(".")
        own = [x for x in names if x in LEARNERS and any(p.name == parameter for p in LEARNERS[x].parameters)]
        takers = [owner] if dot else own if len(names) > 1 else names
        if not takers or takers[0] not in options:
            raise LearnerError(f"-p {given}: none of {', '.join(names)} has such a hyper-parameter")
        for name in takers:
            options[name][parameter] = value
    told = None if drift is None else value_of("--drift", drift)
    return [Learner(name, name, task=task, tie=tie, options=options[name], drift=told) for name in names]


def _watched(examples: "Examples", settings: "Settings", learners: "list[Learner]", fine: bool) -> "Comparison":
    """Compare learners under a progress bar with the best error so far; ``fine``: with a curve that can be drawn."""
    from palearn.evaluate.examples import PIECE
    from palearn.evaluate.prequential import compare
    from palearn.models.counters import MISTAKES, N

    with progress("examples", passing=True) as bar:
        task = bar.add_task("evaluating", total=None)

        def watch(models: "Models") -> None:
            n = int(models.counts[:, N].sum())
            mistakes = [int(state.counts[:, MISTAKES].sum()) for state in models.states]
            best = mistakes.index(min(mistakes))
            told = f"error of {learners[best].name} {mistakes[best] / max(1, n):.4f}"
            bar.update(task, description=told if len(learners) == 1 else f"{told}, the best", completed=n)

        return compare(examples, settings, learners, piece=500 if fine else PIECE, watch=watch)


def _report(passes: "list[Comparison]", *, per_key: bool) -> dict[str, Any]:
    report = {
        "learners": passes[-1].figures(per_key=per_key),
        **passes[-1].account(),
        "no_change": passes[-1].no_change,
    }
    if len(passes) > 1:
        errors = [[x["error"] for x in one.figures(per_key=False)] for one in passes]
        for i, figures in enumerate(report["learners"]):
            own = [row[i] for row in errors if row[i] is not None]
            figures["errors"] = own
            figures["error_mean"] = statistics.fmean(own) if own else None
            figures["error_sd"] = statistics.stdev(own) if len(own) > 1 else None
    return report


def _single(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report of one learner flat, its keys last."""
    (figures,) = report.pop("learners")
    flat = {**figures, **report}
    return {name: flat[name] for name in sorted(flat, key=lambda name: name == "per_key")}


def _show(report: dict[str, Any], found: "Comparison", *, keyed: bool) -> None:
    learners = report["learners"]
    order = sorted(range(len(learners)), key=lambda i: (_judged(learners[i]) is None, _judged(learners[i])))
    console.print(_table(report, order))
    if report["no_change"] is not None:
        console.print(f"predicting no change: {_error(report['no_change'])}", highlight=False)
    _show_labels(found)
    told = [f"{learners[0]['n']:,} examples"]
    told += [
        f"{report[status]:,} {status}" for status in ("pending", "duplicate", "expired", "rejected") if report[status]
    ]
    if "holdout" in report:
        out = report["holdout"]
        told.append(f"{out['n']:,} held out")
        told += [
            f"{out[name]:,} held out {name.replace('_', ' ')}"
            for name in ("unlabelled", "rejected", "no_model", "parts")
            if out[name]
        ]
    console.print(", ".join([*told, f"{report['seconds']:.2f} s"]), highlight=False)
    for line in rejections(found.summary):
        console.print(shown(line), highlight=False, soft_wrap=True)
    if keyed:
        for i in order:
            _show_keys(learners[i])


def _show_labels(found: "Comparison") -> None:
    """Print what is wrong with a run, and the labels that it has met."""
    for line in (*found.account()["problems"], found.labels):
        console.print(shown(line), highlight=False, soft_wrap=True)


def _judged(figures: dict[str, Any]) -> float | None:
    """Return the error that learners are ordered by: over all orders, where there are several."""
    judged: float | None = figures.get("error_mean", figures["error"])
    return judged


def _table(report: dict[str, Any], order: list[int]) -> Sheet:
    """Return the learners' figures, the best first; of their options those that are not the defaults."""
    rows = [report["learners"][i] for i in order]
    columns = [Column("learner", [x["learner"] for x in rows], "name")]
    repeated = "error_mean" in rows[0]
    if repeated:
        columns.append(Column("error ± sd", [f"{_error(x['error_mean'])} ± {_error(x['error_sd'])}" for x in rows]))
    columns.append(
        Column("last order" if repeated else "error", [_error(x["error"]) for x in rows], rank=int(repeated))
    )
    if "holdout" in report:
        out = report["holdout"]
        shares = [out["mistakes"][i] / out["n"] if out["n"] else None for i in order]
        columns.append(Column("held out", list(map(_error, shares)), rank=2))
    columns.append(Column("mistakes", [count(x["mistakes"]) for x in rows], rank=3))
    columns.append(Column("updates", [count(x["updates"]) for x in rows], rank=4))
    if "drifts" in rows[0]:
        columns.append(Column("drifts", [count(x["drifts"]) for x in rows], rank=5))
    options = [_cell(_given(x)) for x in rows]
    if any(options):
        columns.append(Column("options", options, "text", rank=6))
    return Sheet(columns)


def _given(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a learner that are not the defaults."""
    usual = {x.name: x.default for x in LEARNERS[figures["learner"]].parameters}
    return {name: value for name, value in figures["params"].items() if name not in usual or usual[name] != value}


def _error(error: float | None) -> str:
    return "-" if error is None else f"{error:.4f}"


def _show_keys(figures: dict[str, Any], most: int = 10) -> None:
    """Print the keys whose errors are the highest and the lowest for certain, and one in the middle; few keys all."""
    keys = [(name, c["n"], c["mistakes"], c["updates"]) for name, c in figures["per_key"].items() if c["n"]]
    keys.sort(key=lambda row: (-row[1], row[0]))
    worst = _certain(keys, [row[2] for row in keys])[:most]
    left = [row for row in keys if row not in worst]
    best = _certain(left, [row[1] - row[2] for row in left])[:most]
    between = sorted((row for row in left if row not in best), key=lambda row: row[2] / row[1])
    parts = {"worst": worst, "median": between[len(between) // 2 :][:1], "best": best[::-1]}
    rows = [(part, *row) for part, found in parts.items() for row in found]
    console.print(f"\n{figures['learner']}", highlight=False)
    part = [Column("", [row[0] for row in rows], "text")] if left else []
    console.print(
        Sheet(
            (
                *part,
                Column("key", [row[1] for row in rows], "name"),
                Column("error", [_error(row[3] / row[2]) for row in rows]),
                Column("examples", [count(row[2]) for row in rows], rank=1),
                Column("mistakes", [count(row[3]) for row in rows], rank=2),
                Column("updates", [count(row[4]) for row in rows], rank=3),
            )
        )
    )


def _certain(keys: list[_Key], counted: list[int]) -> list[_Key]:
    """Return keys by the share of what is counted of them, as far as it is certain, the highest first."""
    shares = certain_error(np.array(counted), np.array([row[1] for row in keys]))
    return [keys[i] for i in np.argsort(-shares, kind="stable")]


@app.command()
@reads_files
def search(
    file: File,
    learner: Annotated[list[str], typer.Option(help="Learners to try.")] = ["arow", "pa1"],  # noqa: B006
    grid: Annotated[list[str], typer.Option(help="C=2^-4:2^4 (powers), C=0.01:10:7 (evenly), r=0.1,1,10")] = [],  # noqa: B006
    choose: Annotated[float, typer.Option(help="The share of the examples, from the first on, that chooses.")] = 0.5,
    task: Task = "binary",
    bias: Bias = True,
    positive: Positive = None,
    tie: Tie = "negative",
    views: Views = None,
    resume: Annotated[
        Path | None, typer.Option(help="Keep the candidates' results in this file, and skip those in it.")
    ] = None,
    write: Annotated[Path | None, typer.Option(help="Write the configuration's learners block to this file.")] = None,
    *,
    reading: ReadOptions,
    json: Json = False,
) -> None:
    """Choose hyper-parameters by the error on a stream's own past, and say how good they are on the rest of it."""
    from palearn.evaluate import grid_search as searching
    from palearn.evaluate.examples import Examples
    from palearn.evaluate.prequential import compare
    from palearn.files.text_lines import STDIN
    from palearn.learners import Learner

    settings = _settings(task, bias, positive, views)
    (path, *_), reading = inputs([file], reading.but(views=bool(settings.views)))
    if path == STDIN:
        usage("standard input can be read once: write it to a file for search")
    kinds = column_kinds(path, reading, quiet=json)
    examples, candidates = Examples(path, reading), searching.candidates(learner, dict(map(searching.grid, grid)))
    looked = compare(examples, settings, [Learner("perceptron", "perceptron", task=task)])
    if not looked.summary.n:
        raise FileFormatError(
            f"{file}: no record with a label can be used, so nothing can be chosen; palearn evaluate says more"
        )
    plan = searching.Plan(examples, settings, candidates, tie, choose, looked.models.initial_labels)
    with progress("candidates", passing=True) as bar:
        bar_task = bar.add_task("searching", total=len(plan.candidates))
        found = searching.search(plan, resume=resume, progress=lambda n, _: bar.update(bar_task, completed=n))
    account = looked.account()
    block = yaml.safe_dump(searching.configuration(found[0], kinds), sort_keys=False)
    if json:
        told = {name: account[name] for name in ("labels", "positive", "rejected", "reasons", "rejections", "problems")}
        print_json({"chosen": _tried(found[0]), "candidates": [_tried(x) for x in found], **told})
    else:
        _show_labels(looked)
        _show_found(found, block)
        for line in rejections(looked.summary):
            console.print(shown(line), highlight=False, soft_wrap=True)
    if write is not None:
        save(write, block)
    if account["problems"]:
        raise typer.Exit(1)


def _show_found(found: "list[Tried]", block: str) -> None:
    """Print the best candidates, how good the first is, and its configuration."""
    from palearn.evaluate import grid_search as searching

    print_rows(
        [{name: _cell(value) for name, value in _tried(x).items()} for x in found[:10]],
        numbers=("tune_n", "tune_error", "test_n", "test_error"),
    )
    best = found[0]
    rest = f"on the {best.n:,} after them (hold-out) {best.error:.4f}" if best.n else "no example is held out"
    console.print(
        f"error of the best on the first {best.tune_n:,} labelled examples (tuning) {best.tune_error:.4f}; {rest}",
        highlight=False,
    )
    for name, end in searching.ends(found).items():
        told = f"{name}={best.params[name]:g} is the {end} value tried; a better one may lie beyond: --grid {name}=…"
        console.print(told, markup=False, highlight=False)
    console.print()
    console.print(block, markup=False, highlight=False)


def _tried(x: "Tried") -> dict[str, Any]:
    return {
        "learner": x.algorithm,
        "params": x.params,
        "tune_n": x.tune_n,
        "tune_error": x.tune_error,
        "test_n": x.n,
        "test_error": x.error,
    }


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{name}={item:g}" if isinstance(item, float) else f"{name}={item}" for name, item in value.items()
        )
    return ("-" if np.isnan(value) else f"{value:.4f}") if isinstance(value, float) else str(value)

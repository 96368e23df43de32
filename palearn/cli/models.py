"""What a job's models say: weights by name, and predictions for the records of a file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palearn.cli.reading import inputs, reads_files
from palearn.cli.shared import (
    SHIPPED,
    Json,
    app,
    console,
    output_folder,
    print_json,
    print_rows,
    progress,
    usage,
)
from palearn.errors import shown
from palearn.files.options import ReadOptions, listed
from palearn.records import is_utf8

if TYPE_CHECKING:
    from palearn.evaluate.predict import Predictions, Write
    from palearn.tables.weights import Choice

Out = Annotated[str, typer.Argument(help="Output folder of a job.", callback=output_folder)]
AsOf = Annotated[int | None, typer.Option("--batch", help="The models as of this batch; default: the newest.")]


@app.command()
def models(
    out: Out,
    key: Annotated[str | None, typer.Option(help="Show this key; default: list the keys.")] = None,
    learner: Annotated[str | None, typer.Option(help="Show this learner only.")] = None,
    top: Annotated[int, typer.Option(help="How many weights of each learner.", min=1)] = 10,
    batch: AsOf = None,
    with_: Annotated[str | None, typer.Option("--with", help="Compare the key with this one.")] = None,
    with_batch: Annotated[int | None, typer.Option(help="Compare with the models as of this batch.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print queries that find the same: Spark SQL, DuckDB.")] = False,
    json: Json = False,
) -> None:
    """Show which keys have models, a key's strongest weights, or where two models differ most.

    Where a learner keeps variances, "z_score" is a weight over its standard deviation: how sure the learner is that
    it is not 0. Of two models, "difference" is the weight of the second, "other", less that of the first.
    """
    from palearn.tables import weights

    for name in (key, with_):
        if name is not None and not is_utf8(name):
            usage(f"a key is UTF-8 text, which {name!r} is not")
    one, other = None if key is None else weights.Choice(key, batch), None
    if with_ is not None or with_batch is not None:
        if key is None:
            usage("--with and --with-batch compare a key's models: give it with --key")
        other = weights.Choice(key if with_ is None else with_, batch if with_batch is None else with_batch)
    if sql:
        _print_queries(out, one, other, learner, top, batch, json=json)
        return
    rows: list[dict[str, Any]]
    if one is None:
        rows = _keys(out, learner, batch)
    elif other is None:
        rows = [x._asdict() for x in weights.strongest(out, one, learner=learner, top=top)]
    else:
        rows = [x._asdict() for x in weights.compared(out, one, other, learner=learner, top=top)]
    if json:
        print_json(rows)
    else:
        hidden = (
            {"variance", "other_variance"}
            if other is not None
            else {name for name in ("variance", "z_score") if all(row.get(name) is None for row in rows)}
        )
        print_rows([{k: "-" if v is None else v for k, v in row.items() if k not in hidden} for row in rows])


def _keys(out: str, learner: str | None, batch: int | None) -> list[dict[str, Any]]:
    from palearn.tables import reading

    frame = reading.latest_models(out, batch=batch)
    frame = frame if learner is None else frame[frame["learner"] == learner]
    counts = frame.groupby("key").agg(learners=("learner", "count"), n_learned=("n_learned", "max"))
    return [{"key": k, **row} for k, row in counts.to_dict("index").items()]


def _print_queries(
    out: str,
    one: "Choice | None",
    other: "Choice | None",
    learner: str | None,
    top: int,
    batch: int | None,
    *,
    json: bool,
) -> None:
    from palearn.tables import sql

    found = {}
    for dialect in sql.DIALECTS:
        if one is None:
            found[dialect.name] = sql.keys(out, dialect, learner=learner, batch=batch)
        elif other is None:
            found[dialect.name] = sql.strongest(out, dialect, one, learner=learner, top=top)
        else:
            found[dialect.name] = sql.compared(out, dialect, one, other, learner=learner, top=top)
    if json:
        print_json(found)
        return
    for title, name in (("Spark SQL", "spark"), ("DuckDB", "duckdb")):
        console.print(f"-- {title}\n{found[name]};\n", markup=False, highlight=False, soft_wrap=True)


@app.command()
@reads_files
def predict(
    models: Out,
    file: Annotated[str, typer.Argument(help=f"A file of records, - for standard input, or {SHIPPED}.")],
    learner: Annotated[list[str], typer.Option(help="Score with this learner; default: with all.")] = [],  # noqa: B006
    batch: AsOf = None,
    out: Annotated[Path | None, typer.Option(help="Write to this .jsonl, .csv or .parquet file.")] = None,
    *,
    reading: ReadOptions,
    json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON; predictions go to --out only.")
    ] = False,
) -> None:
    """Score a file's records with a job's models, as the stream would: nothing is learned.

    Predictions are JSON lines on standard output, or in a file (--out), one a record and learner. The summary is on
    standard error.
    """
    from palearn.evaluate import predict as predicting

    (path, *_), reading = inputs([file], reading)
    loaded = predicting.load(models, learners=learner, batch=batch)
    found = predicting.Predictions(loaded, path, reading)
    if found.unknown:
        typer.echo(shown(f"{path}: the models do not know {listed(found.unknown)}: left out"), err=True)
    if out is not None:
        with predicting.written(out) as write:
            _score(found, write)
    elif json:
        _score(found, lambda batch: None)
    else:
        with predicting.json_lines(sys.stdout.buffer) as write:
            _score(found, write)
    learned = predicting.learned_already(models, path, found, batch=batch)
    if json:
        print_json({**found.account.summary(), "learned": learned})
        return
    for line in (_line(found.account.summary()), learned):
        if line is not None:
            typer.echo(shown(line), err=True)


def _score(found: "Predictions", write: "Write") -> None:
    """Score all records under a progress bar."""
    with progress("records", passing=True) as bar:
        task = bar.add_task("scoring", total=None)
        for batch in found.batches(lambda records: bar.update(task, completed=records)):
            write(batch)


def _line(summary: dict[str, Any]) -> str:
    """Return a summary for people."""
    errors = ", ".join(f"{x['learner']} {x['error']:.4f}" for x in summary["learners"] if x["error"] is not None)
    parts = [f"{summary['scored']:,} of {summary['records']:,} records scored"]
    if errors:
        parts.append(f"error {errors} ({summary['learners'][0]['n']:,} with a label)")
    if summary["no_model"]:
        keys = summary["keys_without_a_model"]
        parts.append(f"{summary['no_model']:,} of keys without a model ({keys:,} {'key' if keys == 1 else 'keys'})")
    if summary["parts"]:
        parts.append(f"{summary['parts']:,} without all features of their example")
    if summary["rejected"]:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in summary["reasons"].items())
        parts.append(f"{summary['rejected']:,} rejected ({reasons})")
    return "; ".join(parts)

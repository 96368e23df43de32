"""The command line: ``palearn COMMAND``. Thin: each command reads its options and calls one function."""

import atexit
import gc
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from palearn.errors import ConfigError, FileFormatError, PalearnError
from palearn.learners import LEARNERS

app = typer.Typer(
    help="Online linear classifiers, one model per key, learned from Kafka inside a Spark job.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
broker_app = typer.Typer(help="A real single-node Kafka on this machine, for trying things.", no_args_is_help=True)
app.add_typer(broker_app, name="broker")
console = Console()

_SHIPPED = "a data set that ships with palearn: a9a or internet_ads"
Config = Annotated[Path, typer.Option("--config", help="Configuration, YAML.", exists=True, dir_okay=False)]
Overrides = Annotated[list[str], typer.Option("--set", help="Override a value: learners.0.C=0.5")]
Master = Annotated[str | None, typer.Option(help="Spark master, e.g. local[2]; default: spark-submit's, or local[*].")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Port = Annotated[int, typer.Option(help="Clients' port; the controller listens on the next one.", min=1, max=65534)]
Data = Annotated[Path | None, typer.Option(help="Folder of the broker's log and topics.")]
FileFormat = Annotated[str | None, typer.Option("--format", help="libsvm, csv, jsonl or parquet; default: by suffix.")]
LabelColumn = Annotated[str | None, typer.Option("--label", help="Label column of CSV and Parquet; default: label.")]
Names = Annotated[Path | None, typer.Option("--names", help="Feature names for LIBSVM: a line each, in index order.")]


def main() -> None:
    """Run a command; an error of palearn's is one line and exit status 1."""
    _guarded(app)


def stream_job() -> None:
    """Entry of ``jobs/stream.py``."""
    _guarded(lambda: typer.run(stream))


def replay_job() -> None:
    """Entry of ``jobs/replay.py``."""
    _guarded(lambda: typer.run(replay))


def _guarded(command: Callable[[], object]) -> None:
    try:
        command()
    except PalearnError as error:
        Console(stderr=True).print(f"palearn: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


# -- the broker and the producer ------------------------------------------------------------------------


@broker_app.command("start")
def broker_start(port: Port = 9092, data: Data = None) -> None:
    """Start the broker and wait until it answers."""
    from palearn.kafka import broker

    broker.start(port, data)
    console.print(f"Kafka answers at 127.0.0.1:{port}")


@broker_app.command("stop")
def broker_stop(port: Port = 9092, data: Data = None) -> None:
    """Stop the broker; its topics stay."""
    from palearn.kafka import broker

    broker.stop(port, data)
    console.print(f"no broker runs on port {port}")


@broker_app.command("status")
def broker_status(port: Port = 9092, data: Data = None, json: Json = False) -> None:
    """Say whether the broker runs."""
    from palearn.kafka import broker

    found = broker.status(port, data)
    if json:
        _print_json(found)
    else:
        state = f"runs as process {found.pid}" if found.running else "is not running"
        console.print(f"Kafka {found.version} on port {found.port} {state}; data in {found.data}", soft_wrap=True)


@app.command()
def produce(
    files: Annotated[list[str], typer.Argument(help=f"Files, or {_SHIPPED}.")],
    topic: Annotated[str, typer.Option(help="Kafka topic; made if it is not there.")],
    bootstrap_servers: Annotated[str, typer.Option(help="HOST:PORT of a broker.")] = "127.0.0.1:9092",
    key: Annotated[str | None, typer.Option(help="Field whose value is the key.")] = None,
    constant_key: Annotated[str | None, typer.Option(help="One key for all records (default: all).")] = None,
    missing_key: Annotated[str | None, typer.Option(help="Key of records without the field.")] = None,
    format: FileFormat = None,
    label: LabelColumn = None,
    names: Names = None,
    rate: Annotated[float | None, typer.Option(help="At most so many records a second.")] = None,
    partitions: Annotated[int, typer.Option(help="Partitions of a topic that is made.", min=1)] = 4,
    json: Json = False,
) -> None:
    """Send the records of files to a topic, keyed and in order."""
    from palearn.kafka.produce import produce as send

    paths, feature_names = _inputs(files, names)
    with _progress("bytes") as bar:
        task = bar.add_task(f"producing to {topic}", total=None)
        report = send(
            paths, topic=topic, bootstrap=bootstrap_servers, key=key, constant_key=constant_key,
            missing_key=missing_key, format=format, label=label, names=feature_names, rate=rate,
            partitions=partitions, progress=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    if json:
        _print_json(report)
    else:
        rate_seen = report.sent / report.seconds if report.seconds else 0.0
        console.print(f"{report.sent:,} records sent to {topic} in {report.seconds:.1f} s ({rate_seen:,.0f} a second)")
        for bad in report.bad:
            console.print(f"  {bad.path}:{bad.line}: {bad.reason}: {bad.detail}", markup=False, soft_wrap=True)
        if report.bad_count:
            console.print(f"{report.bad_count:,} bad lines were not sent")
    if report.bad_count:
        raise typer.Exit(1)


# -- the jobs -------------------------------------------------------------------------------------------


@app.command()
def stream(
    config: Config,
    set_: Overrides = [],  # noqa: B006 - typer reads the default
    once: Annotated[bool, typer.Option("--once", help="Take what is there now, then stop.")] = False,
    master: Master = None,
) -> None:
    """Learn from Kafka (the Spark job; the same as spark-submit jobs/stream.py)."""
    from palearn.config import load
    from palearn.spark import stream as job

    _log_to_stderr()
    job.run(load(config, [*set_, *(["trigger=available_now"] if once else [])]), master=master)


@app.command()
def replay(
    config: Config,
    input_: Annotated[list[Path], typer.Option("--input", help="Files to learn.", exists=True)] = [],  # noqa: B006
    topic: Annotated[str | None, typer.Option(help="Topic to learn, in place of the configured ones.")] = None,
    from_: Annotated[str, typer.Option("--from", help="earliest, or JSON of offsets a partition.")] = "earliest",
    to: Annotated[str, typer.Option("--to", help="latest, or JSON of offsets a partition.")] = "latest",
    batches_of: Annotated[str | None, typer.Option(help="Checkpoint of a stream: repeat its batches.")] = None,
    set_: Overrides = [],  # noqa: B006
    master: Master = None,
) -> None:
    """Learn history in one batch: the same engine, outputs and bits as the stream."""
    from palearn.config import load
    from palearn.spark import replay as job

    _log_to_stderr()
    overrides = [*set_, *([f"source.kafka.topics=[{topic}]"] if topic else [])]
    paths = [str(path) for path in input_] or None
    job.run(load(config, overrides), paths=paths, start=from_, end=to, batches_of=batches_of, master=master)


@app.command()
def tune(
    config: Config,
    input_: Annotated[list[Path], typer.Option("--input", help="Files; default: the topics.", exists=True)] = [],  # noqa: B006
    records: Annotated[int, typer.Option(help="Size of the sample.", min=1)] = 50_000,
    keys: Annotated[int | None, typer.Option(help="Keys there will be; default: the sample's.", min=1)] = None,
    cores: Annotated[int | None, typer.Option(help="Cores that learn; default: this machine's.", min=1)] = None,
    seconds: Annotated[float, typer.Option(help="The longest that a batch may take.", min=0)] = 10.0,
    set_: Overrides = [],  # noqa: B006
    master: Master = None,
    json: Json = False,
) -> None:
    """Choose buckets, batch size and partitions for a sample of records."""
    import yaml

    from palearn import tune as tuning
    from palearn.config import load
    from palearn.spark.replay import sample

    loaded = load(config, set_)
    chunk = sample(loaded, records, paths=[str(path) for path in input_] or None, master=master)
    found = tuning.advice(tuning.measure(loaded.plan, chunk), keys, cores or os.cpu_count() or 1, seconds)
    if json:
        _print_json(found)
        return
    sampled = found["sample"]
    console.print(
        f"{sampled['records']:,} records of {sampled['keys']:,} keys: {sampled['learn_us']:.1f} us to learn a record "
        f"on this machine, {sampled['key_bytes']:,.0f} bytes a key; {found['keys']:,} keys are "
        f"{found['state_bytes'] / 1e6:,.0f} MB of state",
        highlight=False,
    )
    _print_rows(
        [
            {
                "records a batch": f"{x['batch']:,}",
                "best buckets": f"{x['buckets']:,}",
                "buckets touched": f"{x['touched_buckets']:,.0f}",
                "state moved, MB": f"{x['moved_bytes'] / 1e6:,.1f}",
                "seconds a batch": f"{x['seconds']:.1f}",
                "records a second": f"{x['rate']:,.0f}",
            }
            for x in found["layouts"]
        ]
    )
    console.print(f"\nFor {found['cores']} cores, and at most {seconds:g} s a batch:\n", highlight=False)
    console.print(yaml.safe_dump(found["configuration"]), markup=False, highlight=False)


@app.command()
def evaluate(
    file: Annotated[str, typer.Argument(help=f"A file of examples, or {_SHIPPED}.")],
    learner: Annotated[str, typer.Option(help=f"One of {', '.join(LEARNERS)}.")] = "arow",
    param: Annotated[list[str], typer.Option("-p", "--param", help="Hyper-parameter: -p C=0.1")] = [],  # noqa: B006
    task: Annotated[str, typer.Option(help="binary or multiclass.")] = "binary",
    bias: Annotated[bool, typer.Option(help="Add a constant feature.")] = True,
    positive: Annotated[str | None, typer.Option(help="Label of the positive class, where labels are text.")] = None,
    tie: Annotated[str, typer.Option(help="Class of a score of exactly 0: negative or positive.")] = "negative",
    views: Annotated[str | None, typer.Option(help="Names of the views, with commas.")] = None,
    key: Annotated[str | None, typer.Option(help="A field: one model for each of its values.")] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the file.", min=1)] = 1,
    shuffle: Annotated[int | None, typer.Option(help="Seed of a random order.")] = None,
    format: FileFormat = None,
    label: LabelColumn = None,
    names: Names = None,
    json: Json = False,
) -> None:
    """Test-then-train on a file in this process; no Spark, no Kafka."""
    from palearn.evaluate import evaluate as run

    # The interpreter's last collection would look at all of numba's objects, for a fifth of the whole time.
    atexit.register(gc.freeze)
    (path, *_), feature_names = _inputs([file], names)
    report = run(
        path, learner, _params(param) if param else None, task=task, bias=bias, positive=positive, tie=tie,
        views=views.split(",") if views else (), key=key, epochs=epochs, shuffle=shuffle,
        format=format, label=label, names=feature_names,
    )  # fmt: skip
    if json:
        _print_json(report)
        return
    error = "-" if report["error"] is None else f"{report['error']:.4f}"
    options = ", ".join(f"{name}={value}" for name, value in report["params"].items())
    console.print(f"{report['learner']} ({options})", highlight=False)
    console.print(
        f"{report['n']:,} examples, {report['mistakes']:,} mistakes (error {error}), {report['updates']:,} updates, "
        + "".join(f"{report[fate]:,} {fate}, " for fate in ("waiting", "duplicate", "expired") if report[fate])
        + f"{report['rejected']:,} rejected, {report['seconds']:.2f} s",
        highlight=False,
    )
    if key:
        _key_table(report["per_key"])


@app.command()
def models(
    out: Annotated[Path, typer.Argument(help="Output folder of a job.", exists=True, file_okay=False)],
    key: Annotated[str | None, typer.Option(help="Show this key; default: list the keys.")] = None,
    learner: Annotated[str | None, typer.Option(help="Show this learner only.")] = None,
    top: Annotated[int, typer.Option(help="How many weights.", min=1)] = 10,
    json: Json = False,
) -> None:
    """Show which keys have models, or a key's strongest weights by feature name."""
    from palearn import report, tables

    frame = tables.latest_models(out)
    if key is None:
        counts = frame.groupby("key").agg(learners=("learner", "count"), n_learned=("n_learned", "max"))
        rows: list[dict[str, Any]] = [{"key": k, **row} for k, row in counts.to_dict("index").items()]
    else:
        names = frame.loc[frame["key"] == key, "learner"] if learner is None else [learner]
        rows = [
            {"learner": name, "label": label, "feature": feature, "weight": weight}
            for name in names
            for label, feature, weight in report.strongest(out, key, name, top)
        ]
        if not rows:
            message = f"{out} has no model of key {key!r}" + (f" and learner {learner!r}" if learner else "")
            raise FileFormatError(message)
    if json:
        _print_json(rows)
    else:
        _print_rows(rows)


@app.command()
def report(
    out: Annotated[Path, typer.Argument(help="Output folder of a job.", exists=True, file_okay=False)],
    plot: Annotated[Path | None, typer.Option(help="Draw the rolling error to this PNG or SVG.")] = None,
    json: Json = False,
) -> None:
    """Show the records' fates and the error of every learner and key."""
    from palearn import report as reports

    found = reports.summary(out)
    if plot is not None:
        reports.plot(out, plot)
    if json:
        _print_json(found)
        return
    console.print(reports.fates(found), highlight=False)
    console.print(reports.error_table(found))


@app.command("learners")
def learners_(json: Json = False) -> None:
    """List every learner with its hyper-parameters and source."""
    from palearn.model import learners

    if json:
        _print_json(learners())
        return
    rows = [
        {
            "learner": x["name"],
            "what it is": x["summary"],
            "options": ", ".join(f"{p['name']}={p['default']}" for p in x["parameters"]),
            "source": x["source"],
        }
        for x in learners()
    ]
    _print_rows(rows)


@app.command()
def demo() -> None:
    """Stream UCI Adult through a real Kafka, show what was learned, replay it and compare."""
    from palearn.demo.adult import demo as run

    _log_to_stderr()
    run(console, Path.cwd())


@app.command()
def demo_two_view() -> None:
    """Stream an example's two views and its late label from three topics, compare learners, replay it and compare."""
    from palearn.demo.two_view import demo as run

    run(console, Path.cwd())


@app.command()
def prepare() -> None:
    """Fetch the jars of Kafka and of Spark's connector, and compile the kernels: what first use would wait for."""
    from palearn.prepare import prepare as run

    with _progress("steps") as bar:
        task = bar.add_task("preparing", total=None)
        run(lambda what, done, total: bar.update(task, description=what, completed=done, total=total))


# -- shared by the commands -----------------------------------------------------------------------------


def _key_table(per_key: dict[str, dict[str, int]]) -> None:
    table = Table("key", "n", "mistakes", "error", "updates")
    for name, counts in sorted(per_key.items(), key=lambda item: -item[1]["n"]):
        n, mistakes = counts["n"], counts["mistakes"]
        table.add_row(name, f"{n:,}", f"{mistakes:,}", f"{mistakes / n:.2%}" if n else "-", f"{counts['updates']:,}")
    console.print(table)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    table = Table(*rows[0]) if rows else Table("nothing")
    for row in rows:
        table.add_row(*(f"{cell:+.4f}" if isinstance(cell, float) else str(cell) for cell in row.values()))
    console.print(table)


def _inputs(files: list[str], names: Path | None) -> tuple[list[Path], list[str] | None]:
    """Return the files, with the shipped data sets' names resolved to theirs."""
    from palearn import datasets

    feature_names = None if names is None else _read_names(names)
    paths = []
    for file in files:
        if file in datasets.DATASETS and not Path(file).exists():
            paths.append(datasets.path(file))
            feature_names = feature_names or datasets.names(file)
        else:
            paths.append(Path(file))
    return paths, feature_names


def _read_names(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise FileFormatError(message) from None
    return [line.rpartition("\t")[2] for line in lines]


def _params(given: list[str]) -> dict[str, Any]:
    """Return ``-p NAME=VALUE`` options; a value that is a number is one."""
    from palearn.config import read_yaml

    out: dict[str, Any] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals:
            _usage(f"-p takes NAME=VALUE, got {item!r}")
        try:
            out[name] = read_yaml(text, f"-p {name}")
        except ConfigError as error:
            _usage(str(error))
    return out


def _usage(message: str) -> NoReturn:
    raise typer.BadParameter(message)


def _progress(unit: str) -> Progress:
    """Return a progress bar on standard error, so that standard output can be piped."""
    count = TaskProgressColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


def _print_json(content: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(content, enc_hook=str)).decode() + "\n")


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("palearn").setLevel(logging.INFO)

"""The broker, the producer, and the Spark jobs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from palearn.cli.failures import log_to_stderr
from palearn.cli.reading import column_kinds, inputs, reads_files
from palearn.cli.shared import (
    SHIPPED,
    Config,
    Data,
    Json,
    Master,
    Overrides,
    Port,
    app,
    bootstrap_of,
    broker_app,
    console,
    print_json,
    print_rows,
    progress,
    state_app,
    store_app,
    usage,
)
from palearn.engine.summary import labels_line, rejections
from palearn.errors import ConfigError, shown
from palearn.files import decided
from palearn.files.options import ReadOptions

if TYPE_CHECKING:
    from palearn.config import KafkaSource
    from palearn.kafka.local_broker import BrokerStatus
    from palearn.tables.local_store import StoreStatus


@broker_app.command("start")
def broker_start(port: Port = 9092, data: Data = None) -> None:
    """Start the broker and wait until it answers."""
    from palearn.config.short_forms import BOOTSTRAP
    from palearn.kafka import local_broker

    local_broker.start(port, data)
    address = f"127.0.0.1:{port}"
    console.print(f"Kafka answers at {address}; its data is in {local_broker.status(port, data).data}", soft_wrap=True)
    console.print(f"for other commands and configurations without an address: export {BOOTSTRAP}={address}")


@broker_app.command("stop")
def broker_stop(port: Port = 9092, data: Data = None) -> None:
    """Stop the broker; its topics stay."""
    from palearn.kafka import local_broker

    known = local_broker.status(port, data)  # the folder's broker may have another port than the default one
    ran = local_broker.stop(port, data)
    _say_stopped("broker", known, ran)


@broker_app.command("status")
def broker_status(port: Port = 9092, data: Data = None, json: Json = False) -> None:
    """Say whether the broker runs."""
    from palearn.kafka import local_broker

    found = local_broker.status(port, data)
    _say_status(f"Kafka {found.version}", found, json)


StorePort = Annotated[
    int, typer.Option(help="Port of S3; five servers behind it take the next ones.", min=1, max=65530)
]
StoreData = Annotated[Path | None, typer.Option(help="Folder of the store's objects.")]


@store_app.command("start")
def store_start(port: StorePort = 8333, data: StoreData = None) -> None:
    """Start the store, wait until it answers, and print what leads palearn to it."""
    from palearn.tables import local_store

    local_store.start(port, data)
    console.print(
        f"S3 answers at http://127.0.0.1:{port}; a bucket is there: s3://{local_store.BUCKET}/", soft_wrap=True
    )
    for name, value in local_store.environment(port).items():
        console.print(f"export {name}={value}", soft_wrap=True, highlight=False)


@store_app.command("stop")
def store_stop(port: StorePort = 8333, data: StoreData = None) -> None:
    """Stop the store; its objects stay."""
    from palearn.tables import local_store

    known = local_store.status(port, data)
    ran = local_store.stop(port, data)
    _say_stopped("store", known, ran)


@store_app.command("status")
def store_status(port: StorePort = 8333, data: StoreData = None, json: Json = False) -> None:
    """Say whether the store runs."""
    from palearn.tables import local_store

    _say_status("The store", local_store.status(port, data), json)


def _say_stopped(what: str, known: "BrokerStatus | StoreStatus", ran: bool) -> None:
    told = f"the {what} on port {known.port} is stopped" if ran else f"no {what} of the folder {known.data} runs"
    console.print(told, soft_wrap=True)


def _say_status(what: str, found: "BrokerStatus | StoreStatus", json: bool) -> None:
    if json:
        print_json(found)
    else:
        state = f"runs as process {found.pid}" if found.running else "is not running"
        console.print(f"{what} on port {found.port} {state}; data in {found.data}", soft_wrap=True)


@app.command()
@reads_files
def produce(
    files: Annotated[list[str], typer.Argument(help=f"Files, - for standard input, or {SHIPPED}.")],
    topic: Annotated[str, typer.Option(help="Kafka topic; made if it is not there.")],
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a broker; default: --config's, PALEARN_BOOTSTRAP_SERVERS, or 127.0.0.1:9092."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A job's YAML: its brokers and their access.", exists=True, dir_okay=False)
    ] = None,
    constant_key: Annotated[str | None, typer.Option(help="One key for all records (default: all).")] = None,
    missing_key: Annotated[str | None, typer.Option(help="Key of records without the field.")] = None,
    *,
    reading: ReadOptions,
    views: Annotated[bool, typer.Option("--views", help="VW: namespaces are views.")] = False,
    rate: Annotated[float | None, typer.Option(help="At most so many records a second.")] = None,
    partitions: Annotated[int, typer.Option(help="Partitions of a topic that is made.", min=1)] = 4,
    json: Json = False,
) -> None:
    """Send the records of files to a topic, keyed and in order."""
    from palearn.kafka.produce import produce as send

    kafka, columns = _job_of(config)
    paths, reading = inputs(files, reading.but(views=views))
    if known := decided(paths, reading):
        reading = reading.but(known=known | columns)
    for path in paths:
        column_kinds(path, reading, quiet=json)
    with progress("bytes") as bar:
        task = bar.add_task(f"producing to {topic}", total=None)
        report = send(
            paths, topic=topic, bootstrap=bootstrap_servers or bootstrap_of(kafka.bootstrap_servers if kafka else None),
            access=kafka.access if kafka else None, options=reading, constant_key=constant_key,
            missing_key=missing_key, rate=rate, partitions=partitions,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    if json:
        print_json(report)
    else:
        rate_seen = report.sent / report.seconds if report.seconds else 0.0
        console.print(f"{report.sent:,} records sent to {topic} in {report.seconds:.1f} s ({rate_seen:,.0f} a second)")
        for bad in report.bad:
            console.print(shown(f"  {bad.path}:{bad.line}: {bad.reason}: {bad.detail}"), markup=False, soft_wrap=True)
        if report.bad_count:
            console.print(f"{report.bad_count:,} bad lines were not sent")
    if report.bad_count:
        raise typer.Exit(1)


def _job_of(config: Path | None) -> "tuple[KafkaSource | None, dict[str, str]]":
    """Return the brokers of a job's configuration, and what it says of files' columns."""
    from palearn.config import load

    if config is None:
        return None, {}
    loaded = load(config)
    kafka = loaded.source.kafka
    if kafka is None:
        raise ConfigError(f"{config} has no source.kafka")
    if kafka.java_access:
        raise ConfigError(
            f"{config}: {', '.join(kafka.java_access)} of source.kafka.options are for Java's client, which does not "
            "produce here; say it in source.kafka.access, which both understand"
        )
    return kafka, {name: str(kind) for name, kind in loaded.records.columns.items()}


@app.command()
def stream(
    config: Config,
    set_: Overrides = [],  # noqa: B006 - typer reads the default
    once: Annotated[bool, typer.Option("--once", help="Take what is there now, then stop.")] = False,
    warm_start: Annotated[
        str | None, typer.Option(help="A new checkpoint begins with these models: an output folder, or a checkpoint.")
    ] = None,
    master: Master = None,
) -> None:
    """Learn from Kafka (the Spark job; the same as spark-submit jobs/stream.py)."""
    from palearn.config import load
    from palearn.spark import stream as job
    from palearn.spark.stopping import STOP

    overrides = [*set_, *(["trigger=available_now"] if once else [])]
    loaded = load(config, overrides)
    log_to_stderr(loaded.logging.format, loaded.logging.level)
    job.run(loaded, warm_start=warm_start, master=master)
    STOP.end()


@app.command()
def check(config: Config, set_: Overrides = [], json: Json = False) -> None:  # noqa: B006 - typer reads the default
    """Say all that keeps a stream from starting: configuration, machine, folders, brokers, topics, offsets."""
    from palearn.config import load

    try:
        loaded = load(config, set_)
    except ConfigError as fault:
        told = [str(fault)]
    else:
        from palearn.spark.readiness import faults

        told = list(dict.fromkeys(map(str, faults(loaded))))
    if json:
        print_json({"ready": not told, "faults": told})
    elif told:
        raise ConfigError("\n  ".join(told))
    else:
        console.print("nothing keeps the stream from starting")
    if told:
        raise typer.Exit(1)


@app.command()
@reads_files
def replay(
    config: Config,
    input_: Annotated[list[Path], typer.Option("--input", help="Files to learn.", exists=True)] = [],  # noqa: B006
    topic: Annotated[str | None, typer.Option(help="Topic to learn, in place of the configured ones.")] = None,
    from_: Annotated[str, typer.Option("--from", help="earliest, or JSON of offsets a partition.")] = "earliest",
    to: Annotated[str, typer.Option("--to", help="latest, or JSON of offsets a partition.")] = "latest",
    batches_of: Annotated[str | None, typer.Option(help="Checkpoint of a stream: repeat its batches.")] = None,
    set_: Overrides = [],  # noqa: B006
    *,
    reading: ReadOptions,
    master: Master = None,
) -> None:
    """Learn history in one batch: the same engine, outputs and bits as the stream."""
    from palearn.config import load
    from palearn.spark import replay as job
    from palearn.spark.source import reading_of

    # In quotes: a topic may be called 2024-01-01.
    named = [f"source.kafka.topics={msgspec.json.encode([topic]).decode()}", "source.kafka.topics_pattern=null"]
    overrides = [*set_, *(named if topic else [])]
    paths = [str(path) for path in input_] or None
    loaded = load(config, overrides)
    log_to_stderr(loaded.logging.format, loaded.logging.level)
    given = reading.said
    if "key" in given or (given and not (paths or loaded.source.files)):
        usage("options of reading are for --input, and its key is records.key of the configuration")
    options = reading_of(loaded).but(**given) if given else None
    summary, problems = job.run(
        loaded, paths=paths, start=from_, end=to, batches_of=batches_of, reading=options, master=master
    )
    for line in (*problems, labels_line(summary, loaded.settings), *rejections(summary)):
        console.print(shown(line), highlight=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


@state_app.command("export")
def state_export(
    checkpoint: Annotated[str, typer.Argument(help="Checkpoint of a job that does not run.")],
    out: Annotated[str, typer.Argument(help="A new folder; the models are in OUT/models.")],
    master: Master = None,
) -> None:
    """Write all models of a stopped job, from its state, as a models table."""
    from palearn.spark.export import export, learned_up_to
    from palearn.tables.folder import Folder

    keys = export(checkpoint, out, master=master)
    offsets = msgspec.json.encode(learned_up_to(Folder(checkpoint))).decode()
    console.print(f"the models of {keys:,} keys are in {out}/models", markup=False, soft_wrap=True)
    console.print(f"they have learned the records before {offsets}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def forget(
    key: Annotated[str, typer.Argument(help="The model's key.")],
    config: Config,
    set_: Overrides = [],  # noqa: B006
    master: Master = None,
    json: Json = False,
) -> None:
    """Forget a key of a stopped job: its models, its pending fragments, and its rows in all tables."""
    from palearn.config import load
    from palearn.spark.forget import forget as run

    found = run(load(config, set_), key, master=master)
    if json:
        print_json(found)
        return
    rows = ", ".join(f"{count:,} of {table}" for table, count in found["rows"].items()) or "none of any table"
    state = "it leaves the state" if found["state"] else "the state did not have it"
    console.print(f"rows removed: {rows}; {state}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def capacity(
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

    from palearn.config import load
    from palearn.evaluate import capacity as tuning
    from palearn.spark.replay import sample

    loaded = load(config, set_)
    chunk = sample(loaded, records, paths=[str(path) for path in input_] or None, master=master)
    found = tuning.advice(tuning.measure(loaded.bucket_config, chunk), keys, cores or os.cpu_count() or 1, seconds)
    if json:
        print_json(found)
        return
    sampled = found["sample"]
    console.print(
        f"{sampled['records']:,} records of {sampled['keys']:,} keys: {sampled['learn_us']:.1f} us to learn a record "
        f"on this machine, {sampled['key_bytes']:,.0f} bytes a key; {found['keys']:,} keys are "
        f"{found['state_bytes'] / 1e6:,.0f} MB of state",
        highlight=False,
    )
    rows = [
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
    print_rows(rows, numbers=rows[0])
    console.print(f"\nFor {found['cores']} cores, and at most {seconds:g} s a batch:\n", highlight=False)
    console.print(yaml.safe_dump(found["configuration"]), markup=False, highlight=False)


@app.command()
def compact(
    out: Annotated[str, typer.Argument(help="Output folder of a job.")],
    keep: Annotated[int, typer.Option(help="So many of the newest batches stay as they are.", min=1)] = 10,
    latest: Annotated[list[str], typer.Option(help="Forget the history of this table: models, metrics.")] = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Compact each old batch's files to one; the job may run meanwhile."""
    from palearn.tables.compaction import compact as run

    found = run(out, keep=keep, latest=latest)
    if json:
        print_json(found)
        return
    console.print(
        f"compacted {found.files_before:,} files to {found.files_after:,}; dropped {found.rows_dropped:,} rows that "
        "newer ones replace",
        highlight=False,
    )

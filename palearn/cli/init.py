"""``palearn init``: a commented configuration, made from a sample of a file or a topic."""

import itertools
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from palearn.cli.reading import column_kinds, inputs, reads_files
from palearn.cli.shared import app, bootstrap_of, console, save, usage
from palearn.engine.validation import Chunk
from palearn.errors import FileFormatError, PalearnError, RecordError
from palearn.files.options import ReadOptions
from palearn.records import Label, decode_value, label_text

#: Records that are looked at.
SAMPLE = 5_000
#: The longest that a batch shall take, in seconds, for which buckets are chosen.
_BATCH_SECONDS = 10.0


@dataclass(frozen=True)
class Sample:
    """Records that a configuration is made from: Kafka's keys and values, and where they come from."""

    source: str
    topic: str
    keys: list[bytes | None]
    values: list[Any]
    produced: str | None  #: the command that sends the file to the topic
    key: str  #: of ``records``: record, or a rule


@app.command()
@reads_files
def init(
    source: Annotated[str, typer.Argument(help="A file of examples, or a topic of Kafka.")],
    positive: Annotated[str | None, typer.Option(help="Label of the positive class; default: the rarer one.")] = None,
    topic: Annotated[str | None, typer.Option(help="Topic to send a file to; default: the file's name.")] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="HOST:PORT of a broker; default: PALEARN_BOOTSTRAP_SERVERS, or 127.0.0.1:9092.")
    ] = None,
    write: Annotated[Path | None, typer.Option(help="Write to this file; default: standard output.")] = None,
    *,
    reading: ReadOptions,
) -> None:
    """Write a commented configuration that runs as it is, made from a sample of a file or a topic."""
    if write is not None and write.exists():
        usage(f"{write} is there already; name another file with --write")
    bootstrap = bootstrap_servers or bootstrap_of()
    if Path(source).exists():
        sample = _of_file(source, reading, topic)
    elif Path(source).suffix:
        raise FileFormatError(f"there is no file {source}")
    else:
        sample = _of_topic(source, reading.key, bootstrap)
    text = configuration(sample, positive, bootstrap, str(write or "job.yaml"))
    if write is None:
        typer.echo(text, nl=False)
        return
    save(write, text)
    console.print(f"{write} is written; next: " + "; ".join(_steps(sample, str(write))), soft_wrap=True)


def _of_file(file: str, reading: ReadOptions, topic: str | None) -> Sample:
    from palearn import files

    (path, *_), reading = inputs([file], reading)
    kinds = column_kinds(path, reading, quiet=False)
    if kinds and "label" not in kinds.values():
        raise FileFormatError(f"{file} has no column named label; name one with --label: {', '.join(kinds):.500}")
    lines = list(itertools.islice(files.lines(path, reading, unlabelled=True), SAMPLE))
    options = {"--key": reading.key, "--label": reading.label, "--format": reading.format}
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    given += [word for name, kind in reading.columns.items() for word in ("--column", f"{name}={kind}")]
    name = topic or "".join(x if x.isalnum() or x in "._-" else "-" for x in path.name.partition(".")[0])
    keys = [(line.key or "").encode() if reading.key else b"all" for line in lines]
    command = shlex.join(["palearn", "produce", file, "--topic", name, *given])
    return Sample(file, name, list(keys), [line.value for line in lines], command, "record")


def _of_topic(topic: str, key: str | None, bootstrap: str) -> Sample:
    from palearn.kafka.first_records import first_records
    from palearn.records import key_of

    found = first_records(bootstrap, None, topic, SAMPLE)
    if not found:
        raise PalearnError(f"topic {topic!r:.80} has no records yet to make a configuration from")
    keys, values = [k for k, _ in found], [v for _, v in found]
    rule = "record"
    if key is not None:
        keys, rule = [key_of(value, key) for value in values], f"{{field: {_scalar(key)}}}"
    elif not any(keys):
        keys, rule = [b"all"] * len(values), "{constant: all}"
    return Sample(f"topic {topic}", topic, keys, values, None, rule)


def configuration(sample: Sample, positive: str | None, bootstrap: str, name: str) -> str:
    """Return the text of a configuration; it is checked, and the sample is learned to choose the buckets.

    Raises
    ------
    PalearnError
        No record of the sample has a label and features.
    """
    from palearn.config import parse, read_yaml
    from palearn.evaluate import capacity

    labels = _labels(sample.values)
    if not labels:
        raise PalearnError(f"no record of {sample.source} has a label: {_first_fault(sample.values)}")
    task, side = _task(labels, positive)
    draft = _text(sample, labels, task, side, 64, bootstrap, name)
    plan = parse(read_yaml(draft, name)).bucket_config
    count = len(sample.values)
    chunk = Chunk(sample.keys, sample.values, [""] * count, np.zeros(count, np.int64), np.arange(count))
    found = capacity.advice(capacity.measure(plan, chunk), None, os.cpu_count() or 1, _BATCH_SECONDS)
    buckets = max(64, found["configuration"]["state"]["buckets"])
    return _text(sample, labels, task, side, buckets, bootstrap, name)


def _labels(values: Sequence[Any]) -> Counter[Label]:
    labels: Counter[Label] = Counter()
    for value in values:
        try:
            record = decode_value(value) if isinstance(value, bytes) else value
        except RecordError:
            continue
        if not isinstance(record, RecordError) and record.label is not None:
            labels[record.label] += 1
    return labels


def _first_fault(values: Sequence[Any]) -> str:
    for number, value in enumerate(values, start=1):
        try:
            record = decode_value(value) if isinstance(value, bytes) else value
        except RecordError as fault:
            record = fault
        if isinstance(record, RecordError):
            return f"record {number}: {record}"
    return "name the field that is the label with --label, or the configuration's records.topics"


def _task(labels: Counter[Label], positive: str | None) -> tuple[str, Label]:
    """Return the task, and the positive label where labels do not say it by their sign."""
    texts = {label_text(label): label for label in labels if label is not None}
    if positive is not None and positive not in texts:
        usage(f"--positive {positive!r} is not among the labels: {', '.join(sorted(texts)[:20])}")
    if len(labels) > 2:
        return "multiclass", None
    signs = {float(label) > 0 for label in labels if isinstance(label, int | float)}
    if positive is None and len(signs) == len(labels):
        return "binary", None
    rarer = min(labels, key=lambda label: (labels[label], str(label)))
    return "binary", rarer if positive is None else texts[positive]


def _scalar(value: object) -> str:
    import yaml

    return (
        yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000).removesuffix("\n...\n").strip()
    )


def _steps(sample: Sample, name: str) -> list[str]:
    produced = [] if sample.produced is None else ["palearn broker start", sample.produced]
    return [*produced, f"palearn stream --config {shlex.quote(name)}", "palearn report out --html report.html"]


def _text(
    sample: Sample,
    labels: Counter[Label],
    task: str,
    side: Label,
    buckets: int,
    bootstrap: str,
    name: str,
) -> str:
    steps = "\n".join(f"#   {line}" for line in _steps(sample, name))
    shares = ", ".join(f"{label_text(label)} {count:,}" for label, count in labels.most_common(10) if label is not None)
    which = {
        "multiclass": "  task: multiclass         # more than two labels",
        "binary": "  # labels are numbers or booleans: > 0 is the positive class"
        if side is None
        else f"  positive: {_scalar(side)}         # the label that a positive score predicts",
    }[task]
    return f"""\
# Made by palearn init from {sample.source} ({len(sample.values):,} records; labels: {shares}).
#
{steps}
#
# Every key of a configuration: docs/configuration.md; palearn names the nearest right one for a typo.
source:
  kafka:
    bootstrap_servers: {_scalar(bootstrap)}
    topics: [{_scalar(sample.topic)}]
    # starting_offsets: latest    # default: earliest, the whole topic
    # max_offsets_per_trigger: 100000   # most records of a batch
records:
  key: {sample.key}               # one model for each key; record: the key of the Kafka record
{which}
learners:                     # compared side by side; palearn search chooses C and r
  - {{name: arow, algorithm: arow, r: 1.0}}
  - {{name: pa1, algorithm: pa1, C: 0.1}}
state:
  buckets: {buckets}                # fixed by the first batch; palearn capacity says how many for more keys
output:
  path: out                   # Parquet: models, metrics, rejected records
  # predictions: {{}}           # every score too; the largest table
checkpoint: checkpoint        # state and offsets: one job, one checkpoint, one output
# trigger: 10s                # run on, a batch every 10 seconds; default: take what is there and stop
# monitoring: {{prometheus: {{}}}}
"""

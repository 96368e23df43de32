"""The configuration: YAML, typed, checked whole before anything starts.

Every fault is collected and told at once, with its path; an unknown key names the nearest right one.
``${NAME}`` in a text is replaced by the environment variable; ``--set learners.0.C=0.5`` overrides a value.
"""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
import yaml
from msgspec import Meta

from palearn.assembly import Limits
from palearn.bucket import Plan
from palearn.errors import ConfigError, LearnerError
from palearn.learners import LEARNERS, TASKS, Learner
from palearn.model import check_views
from palearn.models import Settings
from palearn.records import Form, LabelValue, Record, decoder
from palearn.results import TABLES

Count = Annotated[int, Meta(ge=1)]
Text = Annotated[str, Meta(min_length=1)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class KafkaSource(_Part, frozen=True):
    """Topics of a Kafka cluster; ``options`` go to Spark's Kafka source as they are."""

    bootstrap_servers: Text
    topics: Annotated[list[Text], Meta(min_length=1)]
    starting_offsets: Text = "earliest"
    max_offsets_per_trigger: Count = 100_000
    options: dict[str, str] = {}

    @property
    def client_options(self) -> dict[str, str]:
        """What any client of the cluster needs: its address and the options that let one in."""
        allowed = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
        access = {k.removeprefix("kafka."): v for k, v in self.options.items() if k.startswith(allowed)}
        return {"bootstrap.servers": self.bootstrap_servers, **access}


class FilesSource(_Part, frozen=True):
    """Files instead of Kafka, for replay; ``format`` None: by suffix."""

    path: Text | list[Text]
    format: Text | None = None


class Source(_Part, frozen=True):
    """Where records come from: one of the two."""

    kafka: KafkaSource | None = None
    files: FilesSource | None = None


class KeyRule(_Part, frozen=True):
    """Where a record's key is, if not in the Kafka record's key: a field of the value, or one constant."""

    field: Text | None = None
    constant: Text | None = None


class Records(_Part, frozen=True):
    """How records are read; see :mod:`palearn.records`."""

    format: Literal["json"] = "json"
    key: Literal["record"] | KeyRule = "record"
    task: Literal["binary", "multiclass"] = "binary"
    positive: LabelValue | None = None
    bias: bool = True
    views: list[Text] | None = None
    topics: dict[str, Form] = {}
    max_bytes: Count = 1_048_576


class State(_Part, frozen=True):
    """How models are spread and bounded.

    ``buckets`` of keys are Spark's groups; ``partitions`` shuffle partitions hold them (None: as many as
    Spark has cores); ``max_keys`` a bucket and ``max_features`` a key are bounds that are counted when they
    bite. ``buckets`` and ``partitions`` are fixed by a checkpoint's first batch.
    """

    buckets: Annotated[int, Meta(ge=1, le=10_000_000)] = 64
    partitions: Count | None = None
    max_keys: Count | None = None
    max_features: Count = 10_000


class Metrics(_Part, frozen=True):
    """Window of the rolling error (examples) and factor of the faded error."""

    window: Annotated[int, Meta(ge=1, le=1_000_000)] = 1000
    fading: Annotated[float, Meta(gt=0, le=1)] = 0.999


class Table(_Part, frozen=True):
    """Options of an output table: also write it to a Kafka topic."""

    kafka: Text | None = None


class ModelsTable(Table, frozen=True):
    """Options of the models table: a snapshot of the keys changed every so many batches."""

    every: Count = 1


class Output(_Part, frozen=True):
    """Folder of the tables; a table is false, or its options."""

    path: Text
    models: Literal[False] | ModelsTable = ModelsTable()
    metrics: Literal[False] | Table = Table()
    predictions: Literal[False] | Table = False
    rejected: Literal[False] | Table = Table()
    expired: Literal[False] | Table = Table()
    accounts: Literal[False] | Table = Table()

    @property
    def topics(self) -> dict[str, str]:
        """Table -> Kafka topic of the tables that go to one."""
        options = {name: getattr(self, name) for name in (*TABLES, "accounts")}
        return {name: table.kafka for name, table in options.items() if table and table.kafka}


class ProcessingTime(_Part, frozen=True):
    """Start a batch at this interval, e.g. ``10s``."""

    processing_time: Text


class Config(_Part, frozen=True):
    """The whole configuration; source, learners, output and checkpoint are enough."""

    source: Source
    learners: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    output: Output
    checkpoint: Text
    records: Records = Records()
    assembly: Limits = Limits()
    state: State = State()
    metrics: Metrics = Metrics()
    trigger: Literal["available_now"] | ProcessingTime = "available_now"

    @property
    def settings(self) -> Settings:
        """What all models share."""
        records = self.records
        return Settings(
            task=records.task,
            positive=records.positive,
            bias=records.bias,
            views=tuple(records.views or ()),
            window=self.metrics.window,
            fading=self.metrics.fading,
            max_features=self.state.max_features,
        )

    @property
    def plan(self) -> Plan:
        """What a bucket of keys needs to know."""
        tables = frozenset(name for name in TABLES if getattr(self.output, name) is not False)
        learners = tuple(self.make_learners())
        records = self.records
        return Plan(
            self.settings, learners, self.state.max_keys, records.max_bytes, tables, self.assembly, records.topics
        )

    def make_learners(self) -> list[Learner]:
        """Return the learners that race on the stream."""
        return [_learner(item, self.records.task) for item in self.learners]

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What a checkpoint's state depends on; a checkpoint is refused to a configuration that differs here."""
        return {
            "learners": [learner.identity for learner in self.make_learners()],
            "records": msgspec.to_builtins(self.records),
            "state": msgspec.to_builtins(self.state),
            "metrics": msgspec.to_builtins(self.metrics),
            "assembly": msgspec.to_builtins(self.assembly),
        }


def load(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read, expand, override and check a configuration file.

    Parameters
    ----------
    path
        A YAML file.
    overrides
        Texts such as ``learners.0.C=0.5``; the value is YAML.

    Raises
    ------
    ConfigError
        With every fault found, one a line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}") from None
    return parse(read_yaml(text, str(path)), overrides, where=str(path))


class _Loader(yaml.SafeLoader):
    """YAML 1.2's numbers: 1e-3 is one; YAML 1.1 takes it for text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)$"),
    list("-+.0123456789"),
)


def read_yaml(text: str, where: str) -> Any:
    """Return the content of a YAML text.

    Raises
    ------
    ConfigError
        It is no YAML; ``where`` is named, the text is not repeated.
    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        line = f" (line {place.line + 1}, column {place.column + 1})" if place else ""
        raise ConfigError(f"{where} is not YAML{line}: {getattr(error, 'problem', None) or 'unreadable'}") from None
    finally:
        loader.dispose()


def parse(tree: Any, overrides: Sequence[str] = (), *, where: str = "configuration") -> Config:
    """Check a configuration given as mappings and lists; see :func:`load`."""
    if not isinstance(tree, dict):
        raise ConfigError(f"{where}: expected a mapping with source, learners, output and checkpoint")
    for override in overrides:
        _override(tree, override)
    faults: list[str] = []
    tree = _expand(tree, "", faults)
    _fields(tree, Config, "", faults)
    _learner_faults(tree, faults)
    if not faults:
        try:
            config = msgspec.convert(tree, Config)
        except msgspec.ValidationError as error:
            faults.append(_sentence(error))
        else:
            _check(config, faults)
            if not faults:
                return config
    raise ConfigError(f"{where}: " + "\n  ".join(faults))


def _learner_faults(tree: dict[str, Any], faults: list[str]) -> None:
    """Collect what is wrong with each learner's options and names."""
    items, records = tree.get("learners"), tree.get("records") or {}
    task = records.get("task", "binary") if isinstance(records, dict) else "binary"
    if not isinstance(items, list) or task not in TASKS:
        return
    names: list[str] = []
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        try:
            name = _learner(item, task).name
        except LearnerError as error:
            faults.append(f"learners.{i}: {error}")
            continue
        if name in names:
            faults.append(f"learners.{i}.name: {name!r} stands twice; tables tell learners apart by name")
        names.append(name)


def _check(config: Config, faults: list[str]) -> None:
    """What no single field's type can say."""
    source, records = config.source, config.records
    if (source.kafka is None) == (source.files is None):
        faults.append("source: give kafka or files, one of the two")
    if isinstance(records.key, KeyRule) and (records.key.field is None) == (records.key.constant is None):
        faults.append("records.key: give 'record', {field: NAME} or {constant: TEXT}")
    if records.positive is not None and records.task != "binary":
        faults.append(f"records.positive is for the binary task, records.task is {records.task}")
    for topic, form in records.topics.items():
        if form.view is not None and form.view not in (records.views or ()):
            faults.append(f"records.topics.{topic}.view: {form.view!r} is none of records.views {records.views or []}")
        for name in form.fields.keys() - {*Record.__struct_fields__}:
            known = ", ".join(Record.__struct_fields__)
            faults.append(f"records.topics.{topic}.fields.{name}: a record has the fields {known}")
        try:
            decoder(form)
        except ValueError as error:
            faults.append(f"records.topics.{topic}.fields: {error}; each needs a plain name of its own")
        if source.kafka is not None and topic not in source.kafka.topics:
            faults.append(f"records.topics.{topic}: source.kafka.topics has no such topic")
    try:
        check_views(list(records.views or ()))
    except LearnerError as error:
        faults.append(f"records.views: {error}")
    if config.output.topics and source.kafka is None:
        faults.append(f"output.{next(iter(config.output.topics))}.kafka: there is no source.kafka to say which cluster")
    for i, learner in enumerate(config.make_learners()):
        if learner.view is not None and learner.view not in (records.views or ()):
            faults.append(f"learners.{i}.view: {learner.view!r} is none of records.views {records.views or []}")
        if learner.row.views and len(records.views or ()) < 2:
            faults.append(f"learners.{i}: {learner.algorithm} needs two views or more; set records.views: [A, B]")
        if learner.params.get("as_printed") and learner.row.views and len(records.views or ()) > 2:
            faults.append(f"learners.{i}: as_printed is the paper's algorithm for two views; set records.views: [A, B]")


def _learner(item: Mapping[str, Any], task: str) -> Learner:
    options = dict(item)
    algorithm = options.pop("algorithm", None)
    name = options.pop("name", algorithm)
    if not isinstance(algorithm, str) or not isinstance(name, str) or not name:
        raise LearnerError(
            f"a learner needs an algorithm ({', '.join(LEARNERS)}) and may have a name; got {dict(item)}"
        )
    tie, view = options.pop("tie", "negative"), options.pop("view", None)
    return Learner(name, algorithm, task=task, tie=tie, view=view, options=options)


_VARIABLE = re.compile(r"\$\{(\w+)\}")


def _expand(node: Any, path: str, faults: list[str]) -> Any:
    if isinstance(node, dict):
        return {key: _expand(item, f"{path}.{key}".lstrip("."), faults) for key, item in node.items()}
    if isinstance(node, list):
        return [_expand(item, f"{path}.{i}", faults) for i, item in enumerate(node)]
    if not isinstance(node, str):
        return node
    for name in _VARIABLE.findall(node):
        if name not in os.environ:
            faults.append(f"{path}: the environment variable {name} is not set")
    return _VARIABLE.sub(lambda match: os.environ.get(match[1], ""), node)


def _override(tree: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set takes PATH=VALUE such as learners.0.C=0.5, got {override!r}")
    value = read_yaml(text, f"--set {path}")
    *parents, last = path.split(".")
    node: Any = tree
    try:
        for step in parents:
            node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
        node[int(last) if isinstance(node, list) else last] = value
    except (ValueError, IndexError):
        raise ConfigError(f"--set {path}: a list is addressed by numbers from 0") from None
    except (AttributeError, TypeError):
        raise ConfigError(f"--set {path}: a part of this path is a value, it holds nothing") from None


def _fields(node: dict[str, Any], kind: Any, path: str, faults: list[str]) -> None:
    """Collect every unknown key below ``node``, with the nearest known one, and every value of a wrong type."""
    for struct in _structs(kind):
        known = get_type_hints(struct, include_extras=True)
        for key, item in node.items():
            here = f"{path}.{key}".lstrip(".")
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known) or 'none'}"
                faults.append(f"{here}: unknown key {key!r}; {hint}")
            elif isinstance(item, dict) and _structs(known[key]):
                _fields(item, known[key], here, faults)
            else:
                try:
                    msgspec.convert(item, known[key])
                except msgspec.ValidationError as error:
                    faults.append(f"{here}: {_sentence(error)}")


def _sentence(error: msgspec.ValidationError) -> str:
    """Return msgspec's sentence without the value, which may be a secret."""
    text = re.sub(r"Invalid enum value '.*?'(?= - at|$)", "Not one of the values allowed", str(error), flags=re.DOTALL)
    return text.replace(" - at `$.", " - at `").replace(" - at `$", " - at `")


def _structs(kind: Any) -> list[type[_Part]]:
    if isinstance(kind, type):
        return [kind] if issubclass(kind, _Part) else []
    return [struct for part in get_args(kind) for struct in _structs(part)]

"""The sections of a configuration and their types; :mod:`palearn.config.loading` checks what no single one can say."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from palearn.config.section import Section, Text
from palearn.config.security import Access
from palearn.config.topic_formats import Schema, TopicFormat, form_of, read_schema
from palearn.engine.bucket import BucketConfig
from palearn.engine.join import Limits
from palearn.errors import ConfigError, LearnerError
from palearn.learners import LEARNERS, Learner
from palearn.models.state import FADING, MAX_BYTES, MAX_FEATURES, WINDOW, Settings
from palearn.records import PLAIN, Encoding, Kind, LabelValue, ValueFormat
from palearn.records.keys import WANTED, WITH_FIELDS, Form, KeyFormat, schema_fault
from palearn.tables import object_stores
from palearn.tables.schemas import TABLES
from palearn.tables.store import TableFormat

Count = Annotated[int, Meta(ge=1)]


#: Topics that brokers keep for themselves.
_INTERNAL = ("__consumer_offsets", "__transaction_state")


class KafkaSource(Section, frozen=True):
    """Topics of a Kafka cluster; ``options`` go to Spark's Kafka source as they are."""

    bootstrap_servers: Text
    topics: list[Text] = msgspec.field(default_factory=list)
    topics_pattern: Text | None = None
    starting_offsets: Text = "earliest"
    max_offsets_per_trigger: Count = 250_000
    access: Access | None = None
    options: dict[str, str | bool | int | float] = msgspec.field(default_factory=dict)

    def takes(self, topic: str) -> bool:
        """Whether a topic is one of the source's; Kafka's own are not, whatever the pattern."""
        if self.topics_pattern is None:
            return topic in self.topics
        return topic not in _INTERNAL and re.fullmatch(self.topics_pattern, topic) is not None

    @property
    def described(self) -> str:
        """The topics, as a sentence names them."""
        return ", ".join(self.topics) if self.topics_pattern is None else f"topics like {self.topics_pattern}"

    @property
    def fails_on_data_loss(self) -> bool:
        """Whether records that are gone stop the stream; Spark does not mind how options' letters are written."""
        given = {name.lower(): value for name, value in self.spark_options.items()}
        return given.get("failondataloss", "true") != "false"

    @property
    def spark_options(self) -> dict[str, str]:
        """``options`` as texts, which Spark wants; YAML's ``false`` is a truth value."""
        return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in self.options.items()}

    @property
    def java_access(self) -> list[str]:
        """The names of those ``options`` that say how to be let in, as only Java's client understands them."""
        return [name for name in self.options if name.startswith(("kafka.security.", "kafka.sasl.", "kafka.ssl."))]

    @property
    def client_options(self) -> dict[str, str]:
        """What any Java client of the cluster needs: its address and the security settings."""
        given = {name.removeprefix("kafka."): self.spark_options[name] for name in self.java_access}
        access = {} if self.access is None else self.access.java_options()
        return {"bootstrap.servers": self.bootstrap_servers, **access, **given}


class FilesSource(Section, frozen=True):
    """Files instead of Kafka, for replay; ``format`` None: by suffix.

    The others are those of :class:`palearn.files.ReadOptions`.
    """

    path: Text | list[Text]
    format: Text | None = None
    label: Text | None = None
    delimiter: Text | None = None
    header: list[Text] | None = None
    encoding: Text | None = None
    decimal: Text | None = None


class Source(Section, frozen=True):
    """Where records come from: one of the two."""

    kafka: KafkaSource | None = None
    files: FilesSource | None = None


class KeyRule(Section, frozen=True):
    """Where a record's key is, and how it is written.

    With a ``form`` it is the Kafka record's key, written so (:mod:`palearn.records.keys`), or the ``field`` of it. Else
    it is a field of the value, or one constant.
    """

    form: Form | None = None
    field: Text | None = None
    constant: Text | None = None
    schema: Text | None = None

    def faults(self) -> list[str]:
        """Return what is wrong, each with its path."""
        if self.form is None:
            found = [] if self.schema is None else [".schema: is for form: avro"]
            if (self.field is None) == (self.constant is None):
                found.append(f": give 'record', {{form: {'|'.join(WANTED)}}}, {{field: NAME}} or {{constant: TEXT}}")
            return found
        found = [] if self.constant is None else [".constant: a constant key has no form"]
        if self.field is not None and self.form not in WITH_FIELDS:
            found.append(f".field: a key of form {self.form} has no fields (without a form it is a field of the value)")
        if (self.schema is None) == (self.form == "avro"):
            found.append(".schema: " + ("avro needs the file of its schema" if self.schema is None else "is for avro"))
        elif self.schema is not None:
            try:
                fault = schema_fault(read_schema(self.schema))
            except ConfigError as error:
                fault = str(error)
            found += [] if fault is None else [f".schema: {fault}"]
        return found


class Records(Section, frozen=True):
    """How records are read; see :mod:`palearn.records`.

    ``format`` and, for Avro and Protobuf, ``schema`` and ``message`` are those of all topics that say nothing else.
    ``columns``, what a column of a file is, and ``key_feature``, whether the key's column is a feature too, are for
    files that are replayed or sent, and ``columns`` for those that the models score.
    """

    format: Encoding = "json"
    schema: Schema | None = None
    message: Text | None = None
    key: Literal["record"] | KeyRule = "record"
    tombstone: Literal["reject", "forget"] = "reject"
    task: Literal["binary", "multiclass"] = "binary"
    positive: LabelValue | None = None
    bias: bool = True
    views: list[Text] | None = None
    topics: dict[str, TopicFormat] = msgspec.field(default_factory=dict)
    max_bytes: Count = MAX_BYTES
    columns: dict[str, Kind] = msgspec.field(default_factory=dict)
    key_feature: bool = False


class State(Section, frozen=True):
    """How models are spread and bounded.

    ``buckets`` of keys are Spark's groups; ``partitions`` shuffle partitions hold them (None: as many as
    Spark has cores); ``max_keys`` a bucket and ``max_features`` a key are bounds that are counted when they
    bite. ``buckets`` and ``partitions`` are fixed by a checkpoint's first batch.
    """

    buckets: Annotated[int, Meta(ge=1, le=10_000_000)] = 64
    partitions: Count | None = None
    max_keys: Count | None = None
    max_features: Count = MAX_FEATURES


class Metrics(Section, frozen=True):
    """Window of the rolling error (examples) and factor of the faded error."""

    window: Annotated[int, Meta(ge=1, le=1_000_000)] = WINDOW
    fading: Annotated[float, Meta(gt=0, le=1)] = FADING


class Table(Section, frozen=True):
    """Options of an output table: also write it to a Kafka topic."""

    kafka: Text | None = None


class ModelsTable(Table, frozen=True):
    """Options of the models table: a snapshot of the keys changed every so many batches."""

    every_batches: Count = 1


class Output(Section, frozen=True):
    """Folder of the tables, and what they are written as; a table is false, or its options."""

    path: Text
    format: TableFormat = "parquet"
    models: Literal[False] | ModelsTable = ModelsTable()
    metrics: Literal[False] | Table = Table()
    predictions: Literal[False] | Table = False
    rejected: Literal[False] | Table = Table()
    expired: Literal[False] | Table = Table()
    drifts: Literal[False] | Table = Table()
    forgotten: Literal[False] | Table = Table()
    batches: Literal[False] | Table = Table()

    @property
    def topics(self) -> dict[str, str]:
        """Table -> Kafka topic of the tables that go to one."""
        options = {name: getattr(self, name) for name in (*TABLES, "batches")}
        return {name: table.kafka for name, table in options.items() if table and table.kafka}


_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_INTERVAL = rf"^[0-9]+ ?({'|'.join(_UNITS)}|(millisecond|second|minute|hour|day)s?)$"


class ProcessingTime(Section, frozen=True):
    """Start a batch at this interval, e.g. ``10s`` or ``5 minutes``."""

    processing_time: Annotated[str, Meta(pattern=_INTERVAL)]

    @property
    def interval(self) -> str:
        """The interval as Spark reads it, which knows no short units."""
        unit = self.processing_time.lstrip("0123456789").strip()
        return f"{self.processing_time.removesuffix(unit).strip()} {_UNITS.get(unit, unit)}"


class Prometheus(Section, frozen=True):
    """Where the driver answers Prometheus, and how many keys it names.

    Named are the ``worst_keys`` of each learner that are worst now, which is in their windows, among the keys with so
    many labelled records there (or a full window, if that is smaller).
    """

    port: Annotated[int, Meta(ge=1, le=65535)] = 9464
    host: Text = "127.0.0.1"
    worst_keys: Annotated[int, Meta(ge=0, le=100)] = 10
    min_labelled: Count = 100


class Monitoring(Section, frozen=True):
    """What tells others of a running stream; nothing that is learned or counted depends on it."""

    prometheus: Prometheus | None = None


class Logging(Section, frozen=True):
    """How the job's log is written, to standard error: lines of text, or one JSON object a line."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Storage(Section, frozen=True):
    """How object stores are reached; what is not said is taken from the environment (``AWS_…``), or is a role's.

    ``endpoint`` None: Amazon's own. ``allow_http``: records and keys may travel without TLS.
    """

    endpoint: Text | None = None
    region: Text | None = None
    access_key_id: Text | None = None
    secret_access_key: Text | None = None
    session_token: Text | None = None
    allow_http: bool = False

    def variables(self) -> dict[str, str]:
        """Return the variables of the environment that say the same."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name != "allow_http"}
        return object_stores.variables(given | {"allow_http": "true" if self.allow_http else None})

    def faults(self) -> list[str]:
        """Return what is wrong, each with its path."""
        pair = ("access_key_id", "secret_access_key")
        missing = [name for name in pair if getattr(self, name) is None]
        if len(missing) == 1:
            return [f"{missing[0]}: a pair of keys is wanted, {' and '.join(pair)}"]
        return ["session_token: it goes with a pair of keys"] if missing and self.session_token else []


class Config(Section, frozen=True):
    """The whole configuration; source, learners, output and checkpoint are enough."""

    source: Source
    learners: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    output: Output
    checkpoint: Text
    records: Records = Records()
    join: Limits = Limits()
    state: State = State()
    metrics: Metrics = Metrics()
    monitoring: Monitoring = Monitoring()
    logging: Logging = Logging()
    storage: Storage = Storage()
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
            max_bytes=records.max_bytes,
            columns=records.columns,
        )

    @property
    def forms(self) -> dict[str, ValueFormat]:
        """How the values of topics are written, of those that differ; schemas are read from their files."""
        records, kafka = self.records, self.source.kafka
        topics = {*records.topics, *(kafka.topics if kafka else ())}
        found = {
            topic: form_of(records.topics.get(topic), records.format, records.schema, records.message)
            for topic in sorted(topics)
        }
        if kafka and kafka.topics_pattern is not None:  # topics that have no name yet
            found[""] = form_of(None, records.format, records.schema, records.message)
        return {topic: form for topic, form in found.items() if form != PLAIN or "" in found}

    @property
    def key_format(self) -> KeyFormat:
        """How the Kafka records' keys are written; a schema is read from its file."""
        rule = self.records.key
        if not isinstance(rule, KeyRule) or rule.form is None:
            return KeyFormat()
        return KeyFormat(rule.form, rule.field, None if rule.schema is None else read_schema(rule.schema))

    @property
    def bucket_config(self) -> BucketConfig:
        """What a bucket of keys needs to know; schemas are read from their files."""
        return self.bucket_config_with(self.forms)

    def bucket_config_with(self, forms: Mapping[str, ValueFormat]) -> BucketConfig:
        """Return the plan where ``forms`` are known, as they are to workers, who have no files."""
        tables = frozenset(name for name in TABLES if getattr(self.output, name) is not False)
        learners, state = tuple(self.make_learners()), self.state
        rule, tombstone = self.records.key, self.records.tombstone
        form = (rule.form if isinstance(rule, KeyRule) else None) or "text"
        return BucketConfig(self.settings, learners, state.max_keys, tables, self.join, forms, form, tombstone)

    def make_learners(self) -> list[Learner]:
        """Return the stream's learners."""
        return [learner_of(item, self.records.task) for item in self.learners]

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What a checkpoint's state depends on; a checkpoint is refused to a configuration that differs here."""
        return {
            "learners": [learner.identity for learner in self.make_learners()],
            "records": _without_files(msgspec.to_builtins(self.records)),
            "state": msgspec.to_builtins(self.state),
            "metrics": msgspec.to_builtins(self.metrics),
            "join": msgspec.to_builtins(self.join),
        }


def _without_files(records: dict[str, Any]) -> dict[str, Any]:
    """Leave out where schemas are, as a stream gets new ones while it lives, and what earlier versions had not."""
    del records["tombstone"]  # what it does to a record is seen in the table of forgotten keys
    if isinstance(key := records["key"], dict):
        del key["schema"]
        if key["form"] is None:
            del key["form"]
    del records["columns"]  # of files: what is learned of a record does not depend on it
    if not records["key_feature"]:
        del records["key_feature"]
    for form in (records, *records["topics"].values()):
        del form["schema"]
        for name in ("format", "message"):
            if form[name] is None:
                del form[name]
    return records


def learner_of(item: Mapping[str, Any], task: str) -> Learner:
    """Return the learner of an item of ``learners``, or raise a LearnerError."""
    options = dict(item)
    algorithm = options.pop("algorithm", None)
    name = options.pop("name", algorithm)
    if not isinstance(algorithm, str) or not isinstance(name, str) or not name:
        raise LearnerError(
            f"a learner needs an algorithm ({', '.join(LEARNERS)}) and may have a name; got {dict(item)}"
        )
    more = {word: options.pop(word) for word in ("tie", "view", "drift") if word in options}
    return Learner(name, algorithm, task=task, **more, options=options)

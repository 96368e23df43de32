"""Predictions for the records of a file, with the models that a job left."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from palearn import files
from palearn.engine import scoring
from palearn.engine.scoring import Scored
from palearn.engine.validation import Chunk
from palearn.errors import ConfigError, FileFormatError
from palearn.files import Line
from palearn.files.options import DEFAULT, ReadOptions
from palearn.models.column_kinds import known_columns
from palearn.models.keyed import Models
from palearn.tables import reading
from palearn.tables.models_by_key import ModelsByKey
from palearn.tables.schemas import MODELS

#: A row a scored record and learner: the record's line in its file, and what is said of it.
SCHEMA = scoring.SCHEMA.set(0, pa.field("line", pa.int64()))
#: So many records are scored at a time.
PIECE = 5_000


@dataclass
class Account:
    """A file's records by outcome.

    Parameters
    ----------
    learners
        Names of the learners.
    records
        All that were read: ``scored``, ``no_model`` (of ``keys`` that have none), ``parts`` that are not whole, and
        rejected, by reason.
    n, mistakes
        The scored records with a label, and each learner's mistakes among them.
    labelled
        The scored records with a label of each key, by the key's number.
    """

    learners: list[str]
    records: int = 0
    scored: int = 0
    n: int = 0
    mistakes: list[int] = field(default_factory=list)
    no_model: int = 0
    keys: set[str] = field(default_factory=set)
    parts: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    labelled: Counter[int] = field(default_factory=Counter)

    def add(self, found: Scored) -> None:
        """Count what was found of a piece of the file."""
        self.labelled.update(found.key[found.y >= 0].tolist())
        wrong = found.mistakes.tolist()
        self.mistakes = [mine + new for mine, new in zip(self.mistakes or [0] * len(wrong), wrong, strict=True)]
        self.n += found.labelled
        self.scored += found.row.size
        self.no_model += len(found.no_model)
        self.keys.update(stranger.key for stranger in found.no_model)
        self.parts += len(found.parts)
        for fault in found.faults:
            self.reasons[fault.error.reason] = self.reasons.get(fault.error.reason, 0) + 1

    def summary(self) -> dict[str, Any]:
        """Return the counts as ``palearn predict --json`` prints it."""
        return {
            "learners": [
                {"learner": name, "n": self.n, "mistakes": wrong, "error": wrong / self.n if self.n else None}
                for name, wrong in zip(self.learners, self.mistakes or [0] * len(self.learners), strict=True)
            ],
            "records": self.records,
            "scored": self.scored,
            "no_model": self.no_model,
            "keys_without_a_model": len(self.keys),
            "parts": self.parts,
            "rejected": sum(self.reasons.values()),
            "reasons": dict(sorted(self.reasons.items())),
        }


def load(path: str | Path, *, learners: Sequence[str] = (), batch: int | None = None) -> Models:
    """Return the newest models of a job's output folder, for :func:`predict` and :func:`palearn.engine.scoring.score`.

    Parameters
    ----------
    path
        Output folder of a job; its ``models/`` is read.
    learners
        These learners alone, if any is named.
    batch
        As of this batch.

    Raises
    ------
    ConfigError
        The models cannot score, or there is no such learner.
    FileFormatError
        The folder has no models, or none up to that batch.
    """
    table = ModelsByKey(str(path), scoring.COLUMNS, batch)
    rows = pa.concat_tables(table.newest()).sort_by([("key", "ascending"), ("learner", "ascending")])
    return scoring.models_from_rows(rows, learners)


def learned_already(
    path: str | Path, file: str | Path, found: "Predictions", *, batch: int | None = None
) -> str | None:
    """Return a sentence if the records that were scored are ones that a job's models have learned, or seem to be.

    Parameters
    ----------
    path, batch
        As of :func:`load`.
    file
        The file that was scored; a replay notes the files that it learns.
    found
        Its predictions, all of them made.
    """
    names = ("key", "n_learned", "last_topic", "last_offset")
    schema = pa.schema([*(MODELS.field(name) for name in names), ("batch_id", pa.int64())])
    where = None if batch is None else pc.field("batch_id") <= batch
    rows = reading.columns(path, "models", schema, where=where).sort_by("batch_id").to_pylist()
    newest = {row["key"]: row for row in rows}
    place = str(Path(file).resolve())
    line = max((row["last_offset"] for row in newest.values() if row["last_topic"] == place), default=None)
    if line is not None:
        return f"the models have learned this very file, up to line {line:,}: the error is no test of them"
    counts = {found.models.keys[k]: n for k, n in found.account.labelled.items()}
    if counts and counts == {key: row["n_learned"] for key, row in newest.items() if row["n_learned"]}:
        return (
            "the file has as many labelled records of every key as the models have learned "
            f"({sum(counts.values()):,}): if they are the same ones, the error is no test of them"
        )
    return None


class Predictions:
    """The predictions for a file's records, and the counts of them.

    Parameters
    ----------
    models
        Of :func:`load`, or that were learned in this process.
    file
        A file (:func:`palearn.files.read`).
    options
        How the file is read. Its ``key`` is the field whose text is the key of the model; None: there are models of
        one key, and they score all records.

    Raises
    ------
    ConfigError
        ``key`` is None and the models are of several keys.
    """

    def __init__(self, models: Models, file: str | Path, options: ReadOptions = DEFAULT) -> None:
        if options.key is None and len(models.keys) != 1:
            raise ConfigError(f"the models are of {len(models.keys):,} keys: name the field of the key (--key FIELD)")
        self.models, self.account = models, Account([learner.name for learner in models.learners])
        self._constant = models.keys[0] if options.key is None else None
        known = {} if models.settings.views else known_columns(models)
        options = options.but(views=bool(models.settings.views), unlabelled=True, known=known or None)
        #: Columns of the file that the models do not know; they are left out.
        self.unknown = [name for name, kind in files.kinds(file, options).items() if kind == "unknown"]
        self._lines = files.lines(file, options)

    def batches(self, watch: Callable[[int], None] = lambda records: None) -> Iterator[pa.RecordBatch]:
        """Score the file's records in its order; yield rows of :data:`SCHEMA`, a record's learners one after the other.

        ``watch`` is called with the number of records read so far.

        Raises
        ------
        FileFormatError
            The file cannot be read.
        """
        while taken := list(islice(self._lines, PIECE)):
            found = scoring.score(self.models, self._chunk(taken))
            self.account.records += len(taken)
            self.account.add(found)
            watch(self.account.records)
            rows, line = scoring.rows(self.models, found), pa.array([line.number for line in taken], pa.int64())
            yield rows.set_column(0, SCHEMA.field(0), line.take(rows.column(0)))

    def _chunk(self, lines: list[Line]) -> Chunk:
        keys = [key if self._constant is None else self._constant for _, key, _ in lines]
        place = np.arange(len(lines))
        values = [line.value for line in lines]
        raw = [None if key is None else key.encode() for key in keys]
        return Chunk(raw, values, [""] * len(lines), np.zeros(len(lines), np.int64), place)


Write = Callable[[pa.RecordBatch], None]


@contextmanager
def written(path: Path) -> Iterator[Write]:
    """Give a function that writes rows to a file, as JSON lines, CSV or Parquet by its suffix.

    The file is there when all is written, and not before.

    Raises
    ------
    FileFormatError
        The suffix says none of these, or the file cannot be written.
    """
    if path.suffix not in _WRITERS:
        raise FileFormatError(f"{path}: the suffix must say what to write: {', '.join(_WRITERS)}")
    draft = path.with_name(f".{path.name}.part")
    try:
        try:
            with draft.open("wb") as stream, _WRITERS[path.suffix](stream) as write:
                yield write
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise FileFormatError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def json_lines(stream: BinaryIO) -> Iterator[Write]:
    """Give a function that writes rows as JSON lines."""
    encode = msgspec.json.Encoder().encode
    yield lambda batch: stream.writelines(encode(row) + b"\n" for row in batch.to_pylist())


@contextmanager
def _csv(stream: BinaryIO) -> Iterator[Write]:
    with pyarrow.csv.CSVWriter(stream, SCHEMA) as writer:
        yield writer.write_batch


@contextmanager
def _parquet(stream: BinaryIO) -> Iterator[Write]:
    with pq.ParquetWriter(stream, SCHEMA) as writer:
        yield writer.write_batch


_WRITERS = {".jsonl": json_lines, ".csv": _csv, ".parquet": _parquet}

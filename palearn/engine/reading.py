"""Values to columns: plain JSON by the kernel (:mod:`palearn.engine.json_scan`), all else record by record."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from palearn.engine.json_scan import scan
from palearn.errors import RecordError
from palearn.models.columns import Columns, LabelCodes, joined, of_records
from palearn.models.vectorize import Vocabulary, refused_names
from palearn.records import PLAIN, Record, ValueFormat, decode_values
from palearn.records import check as check_record
from palearn.records.value_format import format_of

#: A record's value: wire bytes, or what a file reader made of a line.
Value = bytes | Record | RecordError | None


class Read(NamedTuple):
    """Values as columns, one a value.

    Parameters
    ----------
    columns
        Those of ``refused`` and ``unusable`` hold anything.
    record
        The records of those that are not plain, by their place.
    refused
        Values that are no record, and why.
    unusable
        Records that cannot be used here, and why (:func:`palearn.models.vectorize.flatten`).
    """

    columns: Columns
    record: dict[int, Record]
    refused: dict[int, RecordError]
    unusable: dict[int, RecordError]


class Rules(NamedTuple):
    """How values are read, whatever they are.

    Parameters
    ----------
    vocabulary
        Gets the names of features that it has not.
    features
        The most features of a record.
    most
        The longest value, in bytes.
    forms
        How the values of topics are written that are not plain JSON.
    labels
        Numbers the labels.
    """

    vocabulary: Vocabulary
    features: int
    most: int
    forms: Mapping[str, ValueFormat]
    labels: LabelCodes


def read(values: list[Value], topics: list[str], rules: Rules) -> Read:
    """Read values, ordered by their topics; ``topics`` may be empty where the rules have no ``forms``."""
    texts = [] if rules.vocabulary.views else _scannable(values, topics, rules.most, rules.forms)
    if not any(texts):
        return _with_records(values, topics, rules, None, range(len(values)))
    columns, plain = scan(texts, rules.vocabulary, rules.features, rules.labels)
    unusable = {i: fault for i, fault in refused_names(columns.flat, rules.vocabulary).items() if plain[i]}
    if plain.all():
        return Read(columns, {}, {}, unusable)
    others = np.flatnonzero(~plain).tolist()
    found = _with_records(values, topics, rules, columns if plain.any() else None, others)
    return found._replace(unusable=unusable | found.unusable)


def _with_records(
    values: list[Value], topics: list[str], rules: Rules, plain: Columns | None, at: Sequence[int]
) -> Read:
    """Read the values ``at`` as records; the others' columns are those of ``plain``."""
    _, features, most, forms, labels = rules
    some = [values[i] for i in at]
    found = (
        _records_of_topics(some, [topics[i] for i in at], most, features, forms)
        if forms
        else _records(some, most, features)
    )
    refused = {i: x for i, x in zip(at, found, strict=True) if isinstance(x, RecordError)}
    records = [Record() if isinstance(x, RecordError) else x for x in found]
    columns, faults = of_records(records, labels, rules.vocabulary, features)
    if plain is not None:
        place = np.arange(len(values))
        place[at] = len(values) + np.arange(len(at))
        columns = joined([plain, columns], columns.flat.views).take(place)
    unusable = {at[j]: fault for j, fault in faults.items()}
    return Read(columns, dict(zip(at, records, strict=True)), refused, unusable)


def _scannable(values: list[Value], topics: list[str], most: int, forms: Mapping[str, ValueFormat]) -> list[bytes]:
    """Return the values that may be plain JSON, and nothing in place of the others."""
    if not forms and {*map(type, values)} <= {bytes} and max(map(len, values), default=0) <= most:  # type: ignore[arg-type]
        return values  # type: ignore[return-value]
    other = [topic in forms or "" in forms for topic in topics] if forms else [False] * len(values)
    return [
        value if isinstance(value, bytes) and len(value) <= most and not strange else b""
        for value, strange in zip(values, other, strict=True)
    ]


def _records(values: list[Value], most: int, features: int, form: ValueFormat = PLAIN) -> list[Record | RecordError]:
    if not {Record, RecordError}.isdisjoint(map(type, values)):
        return [
            _checked(v) if isinstance(v, Record | RecordError) else decode_values([v], most, form, features)[0]
            for v in values
        ]
    return decode_values(values, most, form, features)  # type: ignore[arg-type]


def _records_of_topics(
    values: list[Value], topics: list[str], most: int, features: int, forms: Mapping[str, ValueFormat]
) -> list[Record | RecordError]:
    """Decode the values topic by topic; they are in the order of their topics."""
    out: list[Record | RecordError] = []
    for topic, run in groupby(topics):
        stop = len(out) + sum(1 for _ in run)
        out += _records(values[len(out) : stop], most, features, format_of(topic, forms))
    return out


def _checked(value: Record | RecordError) -> Record | RecordError:
    try:
        return value if isinstance(value, RecordError) else check_record(value)
    except RecordError as fault:
        return fault

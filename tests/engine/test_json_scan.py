"""The kernel of plain JSON: what it reads is, bit for bit, what the decoder of records reads; the rest it leaves."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from palearn import datasets
from palearn.engine import json_scan
from palearn.errors import RecordError
from palearn.models.columns import LabelCodes
from palearn.models.vectorize import Vocabulary
from palearn.records import Record, decode_value, encode

LIMIT = 100


def scanned(values: list[bytes], limit: int = LIMIT) -> list[tuple[Any, list[tuple[str, bytes]]] | None]:
    """Label and features of each value, values as their bits; None where it is left."""
    vocabulary, labels = Vocabulary(), LabelCodes()
    columns, plain = json_scan.scan(values, vocabulary, limit, labels)
    flat = columns.flat
    out: list[Any] = []
    for i in range(len(values)):
        first, stop = flat.bounds[i], flat.bounds[i + 1]
        names = [vocabulary.names[j] for j in flat.feature[first:stop]]
        numbers = [struct.pack("d", x) for x in flat.value[first:stop]]
        label = None if columns.code[i] < 0 else labels.values[columns.code[i]]
        out.append((label, list(zip(names, numbers, strict=True))) if plain[i] else None)
    return out


def decoded(value: bytes) -> tuple[Any, list[tuple[str, bytes]]] | None:
    """The same of a value that is a record, as the careful decoder reads it."""
    try:
        record = decode_value(value)
    except RecordError:
        return None
    return record.label, [(name, struct.pack("d", x)) for name, x in (record.features or {}).items()]


def is_plain(record: Record) -> bool:
    return bool(record.features) and record.views is record.id is record.weight is record.time is None


def agrees(values: list[bytes]) -> list[bool]:
    """Compare; return which values were plain."""
    found = scanned(values)
    for value, mine in zip(values, found, strict=True):
        if mine is None:
            continue
        theirs = decoded(value)
        assert theirs is not None, value
        assert mine[1] == theirs[1], value
        assert (type(mine[0]), repr(mine[0])) == (type(theirs[0]), repr(theirs[0])), value
        assert is_plain(decode_value(value)), value
    return [mine is not None for mine in found]


def test_the_records_of_a_real_stream_are_plain() -> None:
    values = [encode(record) for record in datasets.a9a()]
    assert all(agrees(values))
    spaced = [json.dumps(json.loads(value)).encode() for value in values[:1000]]
    assert all(agrees(spaced))


floats = st.floats(allow_nan=False, allow_infinity=False).map(repr)
short = st.decimals(-(10**6), 10**6, places=4).map(str)
numbers = st.one_of(
    floats,
    short,
    st.integers(-(2**70), 2**70).map(str),
    st.from_regex(r"-?[0-9]{1,22}(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(
        ["-0", "-0.0", "0", "0.0", "1e22", "1e23", "9007199254740993", "0.1e-22", "00", "1.", ".5", "+1", "1e"]
    ),
)
texts = st.one_of(
    st.sampled_from(["a", "b", "age=17", "", "label", "features", "(bias)", "a b"]),
    st.text(max_size=6),
    st.text(st.characters(max_codepoint=127), max_size=6),
)
names = texts.map(lambda text: json.dumps(text, ensure_ascii=False))
odd = st.sampled_from(['"x"', "true", "null", "[1]", "{}", '["a"]', "NaN", "Infinity", "1e999", "-"])
gaps = st.sampled_from(["", "", "", " ", "  ", "\n", "\t"])
items = st.tuples(names, gaps, st.one_of(numbers, numbers, numbers, odd), gaps)
features = st.lists(items, max_size=5).map(
    lambda found: "{" + ",".join(f"{g}{n}:{g}{v}{h}" for n, g, v, h in found) + "}"
)
labels = st.one_of(numbers, names, st.sampled_from(["true", "false", "null", "[]", '{"a":1}', "x", ""]))
fields = st.one_of(
    st.tuples(st.just("features"), features),
    st.tuples(st.just("label"), labels),
    st.tuples(
        st.sampled_from(["id", "weight", "time", "x", "views", "other", "lab\\u0065l"]), st.one_of(numbers, features)
    ),
)


def written(found: list[tuple[str, str]], tail: str) -> bytes:
    return ("{" + ",".join(f'"{name}":{value}' for name, value in found) + "}" + tail).encode("utf-8", "surrogatepass")


anything = st.builds(written, st.lists(fields, max_size=4), st.sampled_from(["", "", "", " ", "x", "}", "\n"]))
plainish = st.builds(
    lambda label, found: written([("label", label), ("features", found)], ""),
    st.one_of(short, st.sampled_from(['"spam"', "1", "-1", "true"])),
    st.dictionaries(st.sampled_from("abcdefgh"), short, min_size=1).map(
        lambda found: "{" + ",".join(f'"{name}":{value}' for name, value in found.items()) + "}"
    ),
)


@settings(deadline=None, max_examples=600)
@given(st.lists(st.one_of(anything, plainish), min_size=1, max_size=8))
@example(
    [b'{"label":1,"features":{"a":1,"a":2}}', b'{"features":{"a":-0}}', b'{"label":1,"label":2,"features":{"a":1}}']
)
@example([b"", b"{", b'{"features":{"a":1', b'{"label":"', b"null", b'{"features":{"a":1}}}'])
def test_what_is_read_is_what_the_decoder_reads(values: list[bytes]) -> None:
    agrees(values)


@settings(deadline=None, max_examples=200)
@given(st.lists(plainish, min_size=1, max_size=8))
def test_plain_records_are_read(values: list[bytes]) -> None:
    assert all(agrees(values))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=40), st.integers(0, 60), st.integers(0, 255))
def test_changed_bytes_are_left_or_read_alike(tail: bytes, at: int, byte: int) -> None:
    value = bytearray(b'{"label":-1,"features":{"age":3,"len":0.25,"x":1e-3}}')
    value[at % len(value)] = byte
    agrees([bytes(value), bytes(value) + tail, tail])


@settings(deadline=None, max_examples=500)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_numbers_as_python_writes_them(found: list[float]) -> None:
    agrees([b'{"features":{"a":%s}}' % repr(x).encode() for x in found])


def test_most_numbers_of_17_digits_are_read() -> None:
    random = np.random.default_rng(5)
    found = [b'{"features":{"a":%s}}' % repr(float(x)).encode() for x in random.normal(size=2000)]
    assert np.mean(agrees(found)) > 0.95


def test_more_names_and_labels_than_a_table_has_places() -> None:
    values = [b'{"label":%d,"features":{"f%d":1,"f%d":2.5,"g":3}}' % (i, i, i + 1) for i in range(5000)]
    assert all(agrees(values))


def test_names_that_are_hard_to_find_are_left() -> None:
    """Whoever knows the hash can make names of one place; they are left to the decoder, and cost little time."""
    mask = 2**64 - 1

    def place(name: str) -> int:
        hashed = json_scan.json_kernel._OFFSET & mask
        for byte in name.encode():
            hashed = ((hashed ^ byte) * json_scan.json_kernel._PRIME) & mask
        return (hashed ^ (hashed >> 32)) & 1023

    crowd = [name for name in (f"n{i}" for i in range(150_000)) if place(name) == 7]
    values = [b'{"features":{"%s":1}}' % name.encode() for name in crowd]
    found = agrees(values)
    probes = json_scan.json_kernel._MOST_PROBES
    assert len(crowd) > probes
    assert found == [True] * probes + [False] * (len(crowd) - probes)


def test_too_many_features_are_left() -> None:
    value = encode(Record(label=1, features={f"f{i}": 1.0 for i in range(LIMIT + 1)}))
    assert agrees([value]) == [False]
    assert agrees([encode(Record(label=1, features={f"f{i}": 1.0 for i in range(LIMIT)}))]) == [True]


@pytest.mark.parametrize(
    "value",
    [
        b'{"id":"1","label":1,"features":{"a":1}}',
        b'{"label":1,"features":{"a":1},"weight":2}',
        b'{"label":1,"features":{"a":"x"}}',
        b'{"label":1,"features":{}}',
        b'{"label":1}',
        b'{"label":1,"features":{"\\u0061":1}}',
        '{"label":1,"features":{"é":1}}'.encode(),
        b'{"label":1,"features":{"a":1},"other":1}',
        b'{"label":99999999999999999999,"features":{"a":1}}',
        b'{"label":1e999,"features":{"a":1}}',
    ],
)
def test_what_is_not_plain_is_left(value: bytes) -> None:
    assert scanned([value]) == [None]

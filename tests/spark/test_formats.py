"""Topics in JSON, Avro, Protobuf and LIBSVM at once: real producers, one job, the bits of one process."""

import json
from pathlib import Path
from typing import Any

import pytest

from palearn import tables
from palearn.spark.operator import bucket_config_in, bucket_config_of
from tests import schemas
from tests.spark.conftest import (
    assert_accounts_balance,
    assert_same_learning,
    config,
    learn_without_spark,
    make_topic,
    people,
    send,
    stream,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.usefixtures("spark")
def test_topics_of_four_formats_are_one_stream(broker: str, tmp_path: Path) -> None:
    names = {form: f"form-{form}" for form in ("avro", "json", "libsvm", "shop")}
    for name in names.values():
        make_topic(broker, name, 1)
    write: dict[str, Any] = {"avro": schemas.avro_value, "json": schemas.json_value, "shop": schemas.protobuf_value}
    messages = []
    for number, person in enumerate(people(120)):
        features = dict(sorted((person.features or {}).items()))
        value = {"label": person.label, "features": features, "user": f"u{number % 5}"}
        # The same person by every way, each with keys of its own.
        for form, make in write.items():
            messages.append((names[form], 0, f"{form}-{number % 5}".encode(), make(value)))
        line = f"{person.label} " + " ".join(f"{i}:{x}" for i, x in enumerate(features.values()))
        messages.append((names["libsvm"], 0, b"lines", line.encode()))
    bad = [(names["avro"], 0, b"k", schemas.avro_value({}, 99)), (names["shop"], 0, b"k", b"\0\0\1\x11\x70\2\2\xff")]
    sent = send(broker, [*messages[:90], *bad, *messages[90:]])
    records = schemas.write(tmp_path)
    records["topics"] = {
        names["shop"]: records["topics"]["shop"],
        names["json"]: {"format": "json"},
        names["libsvm"]: {"format": "libsvm"},
    }
    learners = [{"name": "pa1", "algorithm": "pa1"}, {"name": "arow", "algorithm": "arow"}]
    overrides = (f"source.kafka.topics=[{', '.join(names.values())}]", "source.kafka.max_offsets_per_trigger=160")
    chosen = config(broker, "none", tmp_path, *overrides, records=records, learners=learners)
    expected = learn_without_spark(chosen, sent)
    described, forms = bucket_config_in(chosen), chosen.forms
    for file in (tmp_path / "example.avsc", tmp_path / "shop.binpb"):
        file.unlink()
    assert bucket_config_of(described).forms == forms  # a worker looks for no file
    schemas.write(tmp_path)
    out = stream(chosen)

    accounts = assert_accounts_balance(out, len(sent))
    assert len(accounts) > 2
    assert_same_learning(out, expected)
    rejected = tables.read(out, "rejected")
    assert sorted(rejected["reason"]) == ["bad_protobuf", "unknown_schema"]
    assert sorted(map(bytes, rejected["value"])) == sorted(value for *_, value in bad)
    # One person's models are the same whatever the records were written in.
    models = tables.latest_models(out).set_index(["key", "learner"])
    for number in range(5):
        for learner in ("pa1", "arow"):
            rows = [models.loc[(f"{form}-{number}", learner)] for form in write]
            shown = {json.dumps([row[name].tolist() for name in ("features", "weights")]) for row in rows}
            assert len(shown) == 1

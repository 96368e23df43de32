"""``palearn models``: a key's strongest weights, two models beside each other, and the SQL that finds the same."""

import json
import math
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.asked import HOSTILE, KINDS, questions, same

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Outputs of jobs, in folders whose names are hostile too."""
    top = tmp_path_factory.mktemp("models")
    return {name: kind.write(top / f"{name} it's `{{a}}` [b*] ?%41 é") for name, kind in KINDS.items()}


@pytest.fixture
def told(run: Any, outputs: dict[str, Path]) -> Any:
    def call(kind: str, *options: str) -> list[dict[str, Any]]:
        status, out, err = run("models", str(outputs[kind]), *options, "--json")
        assert (status, err) == (0, "")
        return json.loads(out)  # type: ignore[no-any-return]

    return call


@every_kind
@pytest.mark.parametrize("batch", [0, 2])
def test_the_strongest_weights_are_those_of_models_that_know_no_tables(told: Any, kind: str, batch: int) -> None:
    for key in KINDS[kind].keys:
        expected = KINDS[kind].expected(key, batch)
        found = told(kind, "--key", key, "--batch", str(batch), "--top", "1000")
        assert {(x["learner"], x["label"], x["feature"]): (x["weight"], x["variance"]) for x in found} == expected
        assert len(found) == len(expected)
        for x in found:
            sure = None if x["variance"] is None else x["weight"] / math.sqrt(x["variance"])
            assert x["z_score"] == sure
        few = told(kind, "--key", key, "--batch", str(batch), "--top", "2")
        for learner in KINDS[kind].learners:
            own = [x for x in found if x["learner"] == learner]
            assert [abs(x["weight"]) for x in own] == sorted((abs(x["weight"]) for x in own), reverse=True)
            assert [x for x in few if x["learner"] == learner] == own[:2]


@every_kind
@pytest.mark.parametrize("by", ["key", "batch"])
def test_two_models_feature_by_feature(told: Any, kind: str, by: str) -> None:
    one, other = KINDS[kind].keys
    if by == "key":
        first, second = KINDS[kind].expected(one), KINDS[kind].expected(other)
        found = told(kind, "--key", one, "--with", other, "--top", "1000")
    else:
        first, second = KINDS[kind].expected(one, 0), KINDS[kind].expected(one, 1)
        found = told(kind, "--key", one, "--batch", "0", "--with-batch", "1", "--top", "1000")
    nothing = (None, None)
    assert {
        (x["learner"], x["label"], x["feature"]): (
            (x["weight"], x["variance"]), (x["other"], x["other_variance"]), x["difference"],
        )
        for x in found
    } == {
        at: (
            first.get(at, nothing), second.get(at, nothing), second.get(at, (0, 0))[0] - first.get(at, (0, 0))[0],
        )
        for at in first.keys() | second.keys()
    }  # fmt: skip
    assert len(found) == len(first.keys() | second.keys())
    for learner in KINDS[kind].learners:
        sizes = [abs(x["difference"]) for x in found if x["learner"] == learner]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] > 0


def test_keys_as_of_a_batch(told: Any) -> None:
    """Key b has no record in the last batch."""
    assert told("binary") == [
        {"key": "a", "learners": 2, "n_learned": 24},
        {"key": "b", "learners": 2, "n_learned": 16},
    ]
    assert {x["n_learned"] for x in told("binary", "--batch", "0")} == {8}
    assert {x["learners"] for x in told("binary", "--learner", "careful")} == {1}


def test_for_people(run: Any, outputs: dict[str, Path]) -> None:
    strongest = run("models", str(outputs["binary"]), "--key", "a")[1]
    assert all(word in strongest for word in ("careful", "only 0", "z_score", " - "))
    first_order = run("models", str(outputs["binary"]), "--key", "a", "--learner", "careful")[1]
    assert "z_score" not in first_order
    compared = run("models", str(outputs["binary"]), "--key", "a", "--with", "b")[1]
    assert all(word in compared for word in ("only 1", "difference", " - "))
    assert "variance" not in compared
    for options in (["--key", HOSTILE], ["--sql", "--key", HOSTILE, "--with", HOSTILE], []):
        status, out, err = run("models", str(outputs["hostile"]), *options)
        assert (status, err) == (0, "")
        assert "\x1b" not in out
        assert "\U000e0041" not in out


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        (["--key", "nobody"], 1, "has no model of key 'nobody'\n"),
        (["--key", "a", "--learner", "x"], 1, "has no model of key 'a' and learner 'x'\n"),
        (["--key", "a", "--batch", "-3"], 1, "has no model of key 'a' up to batch -3\n"),
        (["--key", "a", "--with", "z"], 1, "has no model of key 'z'\n"),
        (["--key", "a", "--with-batch", "-3"], 1, "has no model of key 'a' up to batch -3\n"),
        (["--with", "b"], 2, "--with and --with-batch"),
        (["--key", "\udcff"], 2, "a key is UTF-8 text"),
        (["--key", "a", "--with", "\udcff"], 2, "a key is UTF-8 text"),
        (["--key", "a", "--top", "0"], 2, "--top"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_not_there_is_told(
    run: Any,
    outputs: dict[str, Path],
    options: list[str],
    status: int,
    sentence: str,
) -> None:
    found, out, err = run("models", str(outputs["binary"]), *options)
    assert (found, out) == (status, "")
    assert sentence in err


@every_kind
def test_duckdb_finds_the_same(run: Any, told: Any, outputs: dict[str, Path], kind: str) -> None:
    for options in questions(KINDS[kind]):
        status, out, _ = run("models", str(outputs[kind]), *options, "--sql", "--json")
        assert status == 0
        expected = told(kind, *options)
        assert expected
        assert same(duckdb.sql(json.loads(out)["duckdb"]).fetchall(), expected), options


def test_a_folder_that_duckdb_cannot_name_is_told(run: Any, tmp_path: Path) -> None:
    out = KINDS["binary"].write(tmp_path / "a\\b")
    assert run("models", str(out), "--json")[0] == 0
    status, text, err = run("models", str(out), "--sql")
    assert (status, text) == (1, "")
    assert "takes the backslash" in err


def test_the_printed_queries_are_those_of_the_json(run: Any, outputs: dict[str, Path]) -> None:
    arguments = ["models", str(outputs["hostile"]), "--key", HOSTILE, "--sql"]
    printed, queries = run(*arguments)[1], json.loads(run(*arguments, "--json")[1])
    assert printed == "".join(
        f"-- {name}\n{queries[key]};\n\n" for name, key in (("Spark SQL", "spark"), ("DuckDB", "duckdb"))
    )

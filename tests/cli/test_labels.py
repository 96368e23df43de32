"""Labels of files that nobody here wrote, at the doors that learn them: the right figure, or one sentence and a status.

Before, labels 1 and 2 were one class with an error of nearly 0, and so were targets of a regression; a positive label
that never came left half of the records, with an error of 0.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palearn.errors import LabelError
from palearn.evaluate import evaluate
from palearn.records import Record

SEARCH = ("search", "--learner", "arow", "--grid", "r=1")


def rows_of(label: Callable[[float], Any], n: int = 600) -> list[tuple[Any, list[float]]]:
    """Return labels of what five numbers say, with noise, and the numbers."""
    draw, rows = random.Random(3), []
    for _ in range(n):
        x = [round(draw.gauss(0, 1), 4) for _ in range(5)]
        rows.append((label(x[0] - x[1] + draw.gauss(0, 1)), x))
    return rows


def written(folder: Path, suffix: str, rows: list[tuple[Any, list[float]]]) -> str:
    """Write labels and numbers as a file; None is no label."""
    path = folder / f"labels.{suffix}"
    if suffix == "parquet":
        columns = {"label": [y for y, _ in rows], **{f"f{j}": [x[j] for _, x in rows] for j in range(5)}}
        pq.write_table(pa.table(columns), path)
        return str(path)
    lines = ["label,f0,f1,f2,f3,f4"] * (suffix == "csv")
    for y, x in rows:
        cells, label = list(map(str, x)), "" if y is None else str(y)
        if suffix == "jsonl":
            lines.append(json.dumps({"label": y, "features": {f"f{j}": v for j, v in enumerate(x)}}))
        elif suffix == "csv":
            lines.append(",".join([label, *cells]))
        else:
            bar = "| " if suffix == "vw" else ""
            lines.append(f"{label} {bar}" + " ".join(f"{j + 1}:{v}" for j, v in enumerate(cells)))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("suffix", ["libsvm", "csv", "jsonl", "vw", "parquet"])
@pytest.mark.parametrize("labels", [(1, 2), (-2, -1), (5, 9), (0, 1)], ids=str)
def test_two_numbers_are_two_classes_in_every_format(
    run: Any, tmp_path: Path, suffix: str, labels: tuple[int, int]
) -> None:
    file = written(tmp_path, suffix, rows_of(lambda s: labels[s > 0]))
    status, printed, _ = run("evaluate", file, "--json")
    found = json.loads(printed)
    named = evaluate(file, positive=labels[1])
    assert (status, found["positive"], found["problems"]) == (0, str(labels[1]), [])
    assert {name: found[name] for name in ("n", "mistakes", "updates", "weight_l2", "labels")} == {
        name: named[name] for name in ("n", "mistakes", "updates", "weight_l2", "labels")
    }
    assert 0.1 < found["error"] < 0.35
    assert sorted(found["labels"]) == sorted(map(str, labels))


def test_which_of_two_names_is_positive_is_said(run: Any, tmp_path: Path) -> None:
    file = written(tmp_path, "libsvm", rows_of(lambda s: 2 if s > 0 else 1))
    for command in (("evaluate",), SEARCH):
        status, printed, _ = run(*command, file)
        assert status == 0
        assert "'2' is the positive one, as the larger of two names (--positive 1 for the other)" in printed
        assert "labels: '" in printed


@pytest.mark.parametrize("suffix", ["libsvm", "csv", "jsonl", "parquet"])
@pytest.mark.parametrize("command", [("evaluate",), ("evaluate", "--json"), SEARCH], ids=" ".join)
@pytest.mark.parametrize(
    ("label", "options", "parts"),
    [
        (lambda s: 0 if s < -1 else 1 if s < 1 else 2, (), ["here are 3", "'1' (", "--task multiclass", "--positive"]),
        (lambda s: round(30 + 5 * s, 1), (), ["two labels, and here are ", "more", "measured"]),
        (lambda s: "yes" if s > 0 else "no", (), ["labels are text", "'yes' (", "'no' (", "--positive '"]),
        (lambda s: "yes" if s > 0 else "no", ("--positive", "Yes"), ["'Yes' has not occurred", "did you mean 'yes'"]),
        (lambda s: "yes" if s > 0 else "no", ("--positive", "1"), ["'1' has not occurred", "'yes' (", "'no' ("]),
        (lambda s: int(s > 0), ("--positive", "yes"), ["'yes' has not occurred", "'0' (", "'1' ("]),
        (lambda s: "abc"[int(s > -1) + int(s > 1)], ("--positive", "a"), ["here are 3", "'b' ("]),
    ],
    ids=["three", "regression", "text", "Yes", "1", "yes", "three texts"],
)
def test_labels_of_no_binary_task_are_refused_in_a_sentence(
    run: Any, tmp_path: Path, suffix: str, command: Any, label: Any, options: Any, parts: list[str]
) -> None:
    file = written(tmp_path, suffix, rows_of(label, 200))
    status, printed, error = run(*command, *options, file)
    assert (status, printed) == (1, "")
    last = error.strip().splitlines()[-1]
    assert last.startswith(f"palearn: {file}: ")
    assert [part for part in parts if part not in last] == []


def test_python_raises_the_same_sentence(tmp_path: Path) -> None:
    file = written(tmp_path, "csv", rows_of(lambda s: "yes" if s > 0 else "no", 50))
    with pytest.raises(LabelError, match=r"truth value true, and labels are text.*in quotes"):
        evaluate(file, positive=True)
    with pytest.raises(LabelError, match="labels are text"):
        evaluate(file)


def test_a_positive_label_may_come_late(run: Any, tmp_path: Path) -> None:
    """What a first thousand labels do not have, the rest of a file may."""
    file = written(tmp_path, "csv", [("no", [1.0] * 5)] * 1500 + [("yes", [-1.0] * 5)])
    status, printed, _ = run("evaluate", "--positive", "yes", "--json", file)
    assert (status, json.loads(printed)["labels"]) == (0, {"no": 1500, "yes": 1})


def test_a_third_label_costs_its_own_records(run: Any, tmp_path: Path) -> None:
    """A hundredth of 7, from the first record on: the others are a task of 0 and 1."""
    good = rows_of(lambda s: int(s > 0), 198)
    file = written(tmp_path, "libsvm", [(7, [1.0] * 5), *good, (7, [1.0] * 5)])
    expected = evaluate(written(tmp_path, "vw", good))
    status, printed, _ = run("evaluate", "--json", file)
    found = json.loads(printed)
    assert (status, found["reasons"], found["labels"]) == (0, {"not_binary": 2}, expected["labels"])
    assert (found["mistakes"], found["weight_l2"]) == (expected["mistakes"], expected["weight_l2"])
    assert found["rejections"]["not_binary"]["record"] == 1
    assert "third label '7'" in found["rejections"]["not_binary"]["detail"]


def test_more_than_a_fifth_rejected_is_said_first_and_by_the_status(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    lines = ['{"label": 1, "features": {"f": 1}}', '{"label": 0, "features": {"f": -1}}', '{"label": 1, "features": 3}']
    for good, bad, status in ((8, 2, 0), (7, 3, 1)):
        path.write_text("\n".join((lines[:2] * good)[:good] + lines[2:] * bad))
        for command in (("evaluate",), SEARCH):
            found, printed, _ = run(*command, str(path))
            fact = f"{10 * bad}.0 % of the labelled records were rejected ({bad} bad_features); record {good + 1}: "
            assert (found, fact in printed) == (status, status == 1)
            assert f"{bad} rejected as bad_features, first record {good + 1}: " in printed
            assert printed.find(fact) < printed.find("labels: '")
        found, printed, _ = run("evaluate", "--json", str(path))
        assert (found, len(json.loads(printed)["problems"])) == (status, status)


def test_a_run_that_learns_nothing_says_so(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"features": {"f": 1}}\n' * 3)
    status, printed, _ = run("evaluate", str(path))
    assert (status, "nothing was learned: none of 3 records has a label" in printed) == (1, True)


def test_what_is_read_once_is_judged_record_by_record() -> None:
    """Records that come once cannot be looked at before: the second name is refused, and what it means is said."""
    rows = rows_of(lambda s: 1 + (s > 0), 50)
    found = evaluate(Record(label=y, features={"f": x[0]}) for y, x in rows)
    assert found["reasons"].keys() == {"not_binary"}
    assert len(found["problems"]) == 1
    assert "are both > 0" in found["problems"][0]

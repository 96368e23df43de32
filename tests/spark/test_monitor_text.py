"""What Prometheus is answered, without Spark: labels, the worst keys, and faults that stop nothing."""

import logging
import socket
import sys
import urllib.error
import urllib.request
from functools import cache

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from scipy.stats import binomtest, norm

from palearn.config import Config, Prometheus, parse
from palearn.engine.summary import Summary
from palearn.errors import ConfigError
from palearn.models.counters import CERTAIN
from palearn.spark import stream
from palearn.spark.monitor import Monitor, serving
from palearn.spark.sink import Written
from palearn.spark.worst_keys import Ranking, Window
from palearn.tables.schemas import METRICS

HOSTILE = [
    'a"b\\c\nd', "a\\nb", "a\nb", "x" * 5000, "x" * 4999 + "y", "<script>alert(1)</script>", '"} 1\nup 0', "\u202eevil",
    "\0", "🎉", "", " ", "{{key}}",
]  # fmt: skip


def configured(tmp_path, **parts) -> Config:
    return parse(
        {
            "source": {"kafka": {"bootstrap_servers": "127.0.0.1:1", "topics": ["t"]}},
            "learners": [{"algorithm": "arow"}, {"algorithm": "pa1"}],
            "output": {"path": str(tmp_path / "out")},
            "checkpoint": str(tmp_path / "checkpoint"),
            "monitoring": {"prometheus": {}},
            **parts,
        }
    )


@pytest.fixture
def monitor(tmp_path) -> Monitor:
    return Monitor(configured(tmp_path), Prometheus(worst_keys=len(HOSTILE)))


def scrape(monitor: Monitor) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return what a scrape has: name and labels -> value; no two samples are the same."""
    families = list(text_string_to_metric_families(generate_latest(monitor).decode()))
    samples = [sample for family in families for sample in family.samples]
    found = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found


def tell(monitor: Monitor, worst=None, records=10, number=0) -> None:
    summary = Summary(records, n=8, mistakes={"arow": 2, "pa1": 4}, updates={"arow": 5, "pa1": 6})
    summary.statuses["learned"] = records
    totals = {name: {"n": 80, "mistakes": 16, "batch_n": 8, "batch_mistakes": 2} for name in ("arow", "pa1")}
    monitor.tell(number, 0.5, summary, totals, worst or {})


# -- labels ---------------------------------------------------------------------------------------------


def test_hostile_keys_stay_different_short_and_text(monitor: Monitor) -> None:
    tell(monitor, {"arow": {key: Window(100, i / 20) for i, key in enumerate(HOSTILE)}})
    keys = {dict(labels)["key"]: value for (name, labels), value in scrape(monitor).items() if "_key_" in name}
    assert sorted(keys.values()) == [i / 20 for i in range(len(HOSTILE))]
    assert all(len(key) < 100 and key.isprintable() for key in keys)
    assert {"<script>alert(1)</script>", "🎉", "{{key}}", "a\\nb"} <= keys.keys()


def test_a_learner_may_have_any_name(tmp_path) -> None:
    config = configured(tmp_path, learners=[{"name": 'a"\n}', "algorithm": "arow"}])
    found = scrape(Monitor(config, Prometheus()))
    (labels,) = (labels for name, labels in found if name == "palearn_mistakes_total")
    assert dict(labels)["learner"].startswith('a"\\n}…')


# -- the worst keys -------------------------------------------------------------------------------------


def rows(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pylist(frame.to_dict("records"), METRICS)


def test_the_ranking_is_that_of_all_rows_sorted_whole() -> None:
    """Batches in any pieces against one sort of the ranked keys and the batch's own, by scipy's interval."""
    rng = np.random.default_rng(8)
    ranking, kept = Ranking(5, 20), {"a": {}, "b": {}}
    for _ in range(30):
        keys = rng.choice(60, 25, replace=False)
        batch = pd.DataFrame(
            [
                {"key": f"k{k}", "learner": learner, "window_n": int(n), "window_error": rng.integers(0, n + 1) / n}
                for k in keys
                for learner, n in (("a", k + 1), ("b", k + 15))
            ]
        )
        pieces = np.array_split(np.arange(len(batch)), 4)
        written = Written(Summary())
        for piece in pieces:
            found = ranking.found(rows(batch.iloc[piece]))
            assert all(len(windows) <= 10 for windows in found.values())
            written.add(msgspec.json.decode(msgspec.json.encode(Written(Summary(), worst=found)), type=Written))
        ranking = ranking.updated(written.worst)
        for learner, mine in kept.items():
            new = batch[batch["learner"] == learner]
            for row in new.itertuples():
                if row.window_n >= 20 or row.key in mine:
                    mine[row.key] = Window(row.window_n, row.window_error)
            kept[learner] = dict(sorted(mine.items(), key=lambda item: (-least(item[1]), item[0]))[:5])
    assert ranking.windows == kept


@cache
def least(window: Window) -> float:
    """Return what scipy has for the lower end; rounded, as two ways to reckon it may differ in the last bit."""
    outcome = binomtest(round(window.n * window.error), window.n)
    return round(outcome.proportion_ci(1 - 2 * norm.sf(CERTAIN), "wilson").low, 10)


def test_what_is_surely_bad_comes_before_what_is_bad_by_chance() -> None:
    """A key whose window just began, and with a higher error, is after one with many mistakes."""
    windows = {"new": Window(100, 0.45), "old": Window(1000, 0.42), "good": Window(1000, 0.1)}
    assert list(Ranking(2, 100).updated({"a": windows}).windows["a"]) == ["old", "new"]


def test_keys_that_are_no_longer_the_worst_vanish(monitor: Monitor) -> None:
    monitor.ranking = Ranking(2, 1)
    seen = []
    for worst in ({"p": 0.1, "q": 0.2}, {"r": 0.3}, {"q": 0.0, "s": 0.15}):
        tell(monitor, {"arow": {key: Window(100, error) for key, error in worst.items()}})
        seen.append({dict(labels)["key"] for name, labels in scrape(monitor) if name == "palearn_key_error_ratio"})
    assert seen == [{"p", "q"}, {"q", "r"}, {"r", "s"}]


def test_a_ranked_key_that_begins_anew_leaves() -> None:
    """It was dropped, to make room, and comes back without a label: its window has no error."""
    table = rows(pd.DataFrame([{"key": "k", "learner": "a", "window_n": 0, "window_error": None}]))
    ranking = Ranking(2, 1, {"a": {"k": Window(9, 1.0), "l": Window(9, 0.5)}})
    told = msgspec.json.encode(Written(Summary(), worst=ranking.found(table)))
    found = msgspec.json.decode(told, type=Written).worst
    assert found == {"a": {"k": Window(0, 0.0)}}
    assert ranking.updated(found).windows == {"a": {"l": Window(9, 0.5)}}


def test_no_keys_are_named_where_none_are_wanted() -> None:
    table = rows(pd.DataFrame([{"key": "k", "learner": "a", "window_n": 500, "window_error": 1.0}]))
    assert Ranking(0, 1).found(table) == {"a": {}}
    assert Ranking(0, 1).updated({"a": {}}).windows == {"a": {}}


# -- faults ---------------------------------------------------------------------------------------------


def test_without_the_package_the_sentence_says_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "palearn.spark.monitor", raising=False)
    with pytest.raises(ConfigError, match=r"^monitoring\.prometheus needs .* pip install 'palearn\[prometheus\]'"):
        stream.run(configured(tmp_path))


def test_a_port_in_use_is_said_once_and_stops_nothing(tmp_path, caplog) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serving(configured(tmp_path), Prometheus(port=port)) as monitor:
            tell(monitor)
    (said,) = caplog.records
    assert (said.levelno, f"127.0.0.1:{port} (Address already in use)" in said.getMessage()) == (logging.WARNING, True)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.9"])
def test_an_address_of_another_machine_is_said(tmp_path, caplog, host) -> None:
    with serving(configured(tmp_path), Prometheus(host=host)):
        pass
    (said,) = caplog.records
    assert f"nothing can be served at {host}:9464" in said.getMessage()


def test_a_fault_is_logged_once_and_later_batches_count(monitor: Monitor, caplog) -> None:
    for _ in range(3):
        monitor.look(None)  # type: ignore[arg-type]
    tell(monitor)
    (said,) = caplog.records
    assert (said.levelno, "the stream goes on" in said.getMessage()) == (logging.WARNING, True)
    assert scrape(monitor)["palearn_records_total", ()] == 10


# -- counting -------------------------------------------------------------------------------------------


def test_counters_grow_and_gauges_are_the_newest_batchs(tmp_path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(configured(tmp_path), Prometheus(port=port)) as monitor:
        before = scrape(monitor)
        tell(monitor)
        tell(monitor, records=90, number=1)
        found = scrape(monitor)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert "palearn_records_total 100.0" in answer.read().decode()
    assert before["palearn_records_total", ()] == 0
    assert before["palearn_settled_records_total", (("status", "learned"),)] == 0
    assert found["palearn_settled_records_total", (("status", "learned"),)] == 100
    assert found["palearn_mistakes_total", (("learner", "pa1"),)] == 8
    assert found["palearn_updates_total", (("learner", "arow"),)] == 10
    assert found["palearn_newest_batch", ()] == 1
    assert found["palearn_newest_batch_records_per_second", ()] == 180
    assert found["palearn_error_ratio", (("learner", "arow"),)] == 0.2
    assert found["palearn_newest_batch_error_ratio", (("learner", "arow"),)] == 0.25
    buckets = {dict(labels)["le"]: n for (name, labels), n in found.items() if name.endswith("_bucket")}
    assert (buckets["0.5"], buckets["+Inf"], found["palearn_batch_duration_seconds_sum", ()]) == (2, 2, 1.0)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")

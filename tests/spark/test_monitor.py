"""A running job's metrics, as Prometheus scrapes them, beside its tables; every name that asks for one of them."""

import json
import re
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import promql_parser
import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from palearn import tables
from palearn.models.counters import certain_error
from palearn.spark import stream as stream_job
from tests.conftest import free_port_pair
from tests.spark.conftest import MASTER, config, make_topic, send

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ROOT = Path(__file__).parents[2]
KEYS = ['quo"te\\', "new\nline", "<b>k</b>", "long" * 500, "plain", "🎉"]
#: Records of each partition, and how many the only batch takes of all.
SENT, TAKEN = [60, 30, 30], 80
MONITORING = {"worst_keys": 3, "min_labelled": 5}
#: What Prometheus itself says of whom it asks.
TARGET = {"job", "instance"}


class Scraped(NamedTuple):
    """What a job answered in the end, and the tables that it left."""

    families: list[Metric]
    out: Path

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        """Return the texts of a metric's labels, in the order of the labels' names -> value."""
        samples = [sample for family in self.families for sample in family.samples if sample.name == name]
        return {tuple(text for _, text in sorted(sample.labels.items())): sample.value for sample in samples}

    def labels(self) -> dict[str, set[str]]:
        """Return the labels of every name that a query can ask for."""
        found: dict[str, set[str]] = {}
        for family in self.families:
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
        return found


@pytest.fixture(scope="module")
def scraped(broker: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Scraped:
    """One batch of a job that runs on; then it is asked, and stopped."""
    topic, folder, port = "monitored", tmp_path_factory.mktemp("monitored"), free_port_pair()
    make_topic(broker, topic, len(SENT))
    rng = np.random.default_rng(8)
    places = [part for part, count in enumerate(SENT) for _ in range(count)]
    send(broker, [(topic, part, KEYS[i % len(KEYS)].encode(), _value(rng, i)) for i, part in enumerate(places)])
    chosen = config(
        broker, topic, folder, f"source.kafka.max_offsets_per_trigger={TAKEN}", "metrics.window=10",
        trigger={"processing_time": "1000 d"}, monitoring={"prometheus": {"port": port, **MONITORING}},
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_job, "_LOOK_S", 1)
        job = threading.Thread(target=stream_job.run, args=(chosen,), kwargs={"master": MASTER})
        job.start()
        text = _when_it_waits(job, f"http://127.0.0.1:{port}/metrics")
        for query in spark.streams.active:
            query.stop()
        job.join()
    return Scraped(list(text_string_to_metric_families(text)), folder / "out")


def _value(rng: np.random.Generator, number: int) -> bytes:
    if number % 20 == 0:
        return b"no JSON"
    label = {} if number % 20 == 1 else {"label": int(rng.integers(0, 2))}
    return json.dumps({**label, "features": {f"f{j}": float(rng.normal()) for j in range(4)}}).encode()


def _when_it_waits(job: threading.Thread, address: str) -> str:
    """Return the first answer of which all parts speak of the batch."""
    while job.is_alive():
        time.sleep(0.2)
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                text: str = answer.read().decode()
        except urllib.error.URLError:
            continue
        if "palearn_newest_batch 0.0" in text and "palearn_lag_records{" in text:
            return text
    raise AssertionError("the job ended before its batch was seen")


# -- what is counted is what the tables have --------------------------------------------------------------


def test_records_by_status_are_the_sums_of_the_table_of_batches(scraped: Scraped) -> None:
    (account,) = tables.read(scraped.out, "batches").to_dict("records")
    assert scraped.values("palearn_records_total") == {(): account["records"]}
    assert account["records"] > 60
    statuses = scraped.values("palearn_settled_records_total")
    assert statuses == {
        (status,): account[status] for status in ("learned", "scored", "duplicate", "rejected", "expired")
    }
    assert scraped.values("palearn_pending_records_change") == {(): account["pending"]}
    reasons = {labels: n for labels, n in scraped.values("palearn_rejected_records_total").items() if n}
    assert reasons == {("not_json",): account["rejected"]}
    assert account["rejected"] > 0
    assert scraped.values("palearn_evicted_keys_total") == {(): account["keys_evicted"]}


def test_mistakes_and_updates_are_those_of_the_metrics(scraped: Scraped) -> None:
    rows = tables.metrics(scraped.out)
    by_key = rows[rows["key"].notna()].groupby("learner")[["n", "mistakes", "updates"]].sum()
    assert set(by_key["n"]) == {scraped.values("palearn_labelled_records_total")[()]}
    for name in ("mistakes", "updates"):
        assert scraped.values(f"palearn_{name}_total") == {(x,): n for x, n in by_key[name].items()}
    errors = {(x,): row.mistakes / row.n for x, row in by_key.iterrows()}
    assert scraped.values("palearn_error_ratio") == pytest.approx(errors)
    assert scraped.values("palearn_newest_batch_error_ratio") == pytest.approx(errors)


def test_the_worst_keys_are_those_of_the_tables_windows(scraped: Scraped) -> None:
    rows = tables.metrics(scraped.out).query("window_n >= 5 and key.notna()")
    rows["certain"] = certain_error(np.rint(rows["window_error"] * rows["window_n"]), rows["window_n"])
    rows = rows.sort_values(["certain", "key"], ascending=[False, True])
    named = scraped.values("palearn_key_error_ratio")
    for learner, mine in rows.groupby("learner"):
        worst = mine.head(MONITORING["worst_keys"])
        errors = {key: error for (key, name), error in named.items() if name == learner}
        assert list(errors.values()) == worst["window_error"].tolist()
        plain = [key for key in worst["key"] if key.isprintable() and len(key) <= 80]
        assert set(plain) == {key for key in errors if "…" not in key}
    assert len(named) == MONITORING["worst_keys"] * rows["learner"].nunique()


def test_the_lag_is_what_the_batch_left(scraped: Scraped) -> None:
    (taken,) = tables.read(scraped.out, "batches")["offsets"]
    left = {(str(x["partition"]), "monitored"): SENT[x["partition"]] - x["end"] for x in taken}
    assert scraped.values("palearn_lag_records") == left
    assert sum(left.values()) > 30


def test_the_job_says_that_it_waits_and_since_when(scraped: Scraped) -> None:
    assert scraped.values("palearn_trigger_active") == {(): 0}
    written = (scraped.out / "_palearn/batches/0.json").stat().st_mtime
    assert scraped.values("palearn_newest_batch_timestamp_seconds") == {(): pytest.approx(written, abs=60)}
    assert scraped.values("palearn_batch_duration_seconds_count") == {(): 1}
    assert scraped.values("palearn_state_memory_bytes")[()] > 0


# -- what asks for metrics asks for those that are there ---------------------------------------------------


def asked(expression: str, known: dict[str, set[str]]) -> set[str]:
    """Return the labels that a query can see; raise an AssertionError where it asks for what is not there."""

    def selectors(node: promql_parser.Expr) -> list[Any]:
        found: list[Any] = []
        promql_parser.walk(node, lambda x: found.append(x) if isinstance(x, promql_parser.VectorSelector) else None)
        return found

    def seen(node: promql_parser.Expr) -> set[str]:
        return TARGET.union(*(known[selector.name] for selector in selectors(node)))

    def visit(node: promql_parser.Expr) -> None:
        modifier = getattr(node, "modifier", None)
        lists = (modifier, "labels"), (modifier, "group_labels"), (getattr(modifier, "matching", None), "labels")
        labels = {label for part, name in lists for label in getattr(part, name, None) or ()}
        assert labels <= seen(node), f"{expression}: nothing there has the labels {labels - seen(node)}"

    tree = promql_parser.parse(expression)
    assert selectors(tree), f"{expression} asks for nothing"
    for selector in selectors(tree):
        assert selector.name in known, f"{expression}: the job has no metric {selector.name}"
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert labels <= known[selector.name] | TARGET, f"{expression}: {selector.name} has other labels than {labels}"
    promql_parser.walk(tree, visit)
    return seen(tree)


@pytest.mark.parametrize(
    "expression",
    [
        "b",
        'rate(a{fat="x"}[5m])',
        "sum by (key) (a)",
        "sum(a) / ignoring (key) group_left c",
        "sum by (key) (a) + sum by (key) (c)",
        "a / on (job) group_left (key) c{job='x'} > 0 and time() - d",
        "1 + 2",
    ],
)
def test_a_query_for_what_is_not_there_is_found(expression: str) -> None:
    known = {"a": {"status"}, "c": {"status"}}
    asked("sum by (status, instance) (rate(a{status='x'}[5m])) / on (status) group_left (job) c", known)
    with pytest.raises(AssertionError):
        asked(expression, known)


def test_the_dashboard_asks_for_what_is_there(scraped: Scraped) -> None:
    known = scraped.labels()
    dashboard = json.loads((ROOT / "docker/grafana/palearn.json").read_text(encoding="utf-8"))
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(targets) > 15
    for target in targets:
        labels = asked(target["expr"].replace("$__rate_interval", "1m"), known)
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, target
    (instances,) = dashboard["templating"]["list"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", instances["query"]["query"]).groups()  # type: ignore[union-attr]
    assert (metric in known, label in TARGET, instances["name"]) == (True, True, label)


def test_the_alerts_ask_for_what_is_there(scraped: Scraped) -> None:
    (group,) = yaml.safe_load((ROOT / "docker/prometheus/alerts.yml").read_text(encoding="utf-8"))["groups"]
    page = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in group["rules"]] == re.findall(r"^\| `(Palearn\w+)` \|", page, re.MULTILINE)
    for rule in group["rules"]:
        labels = asked(rule["expr"], scraped.labels())
        texts = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels


def test_the_page_has_every_metric_and_no_other(scraped: Scraped) -> None:
    page = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(palearn_\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    described = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in table}
    assert len(described) == len(table)
    found = {}
    for family in scraped.families:
        assert family.samples, f"nothing in the test's job makes {family.name}"
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
    assert described == found
    for query in re.findall(r"^```promql\n(.*?)\n```", page, re.MULTILINE | re.DOTALL):
        asked(query, scraped.labels())

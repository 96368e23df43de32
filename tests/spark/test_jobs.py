"""jobs/stream.py and jobs/replay.py under a real spark-submit: what they log, and how they end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from pandas.testing import assert_frame_equal

from palearn import tables
from palearn.spark.connectors import CONNECTOR
from tests.spark.conftest import LEARNERS, PEOPLE, assert_accounts_balance, by_key, config, make_topic, send

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ROOT = Path(__file__).parents[2]


def write_config(broker: str, topic: str, folder: Path, *overrides: str) -> Path:
    """Write the configuration of :func:`tests.spark.conftest.config` as a file, as users have it."""
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(msgspec.to_builtins(config(broker, topic, folder, *overrides))))
    return path


def submit(job: str, *options: str, conf: tuple[str, ...] = (), packages: str | None = CONNECTOR) -> list[str]:
    with_packages = [] if packages is None else ["--packages", packages]
    settings = [
        part for item in ("spark.ui.enabled=false", "spark.log.level=ERROR", *conf) for part in ("--conf", item)
    ]
    spark_submit = str(Path(sys.executable).with_name("spark-submit"))
    return [spark_submit, "--master", "local[2]", *with_packages, *settings, str(ROOT / f"jobs/{job}.py"), *options]


def start(command: list[str], folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, away from the checkout; standard error goes with output."""
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return subprocess.Popen(
        command, cwd=folder, env=os.environ | python | environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def start_job(job: str, broker: str, topic: str, folder: Path, *overrides: str) -> subprocess.Popen[str]:
    path = write_config(broker, topic, folder, *overrides)
    return start(submit(job, "--config", str(path)), folder)


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    """Read what a job prints until a word comes."""
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if word in line:
            return
    raise AssertionError("".join(printed))


def finish(command: list[str], folder: Path) -> tuple[int, str]:
    process = start(command, folder)
    printed, _ = process.communicate()
    return process.returncode, printed


def palearn_lines(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line.startswith("palearn:")]


LINE = re.compile(
    r"batch (?P<batch>\d+): (?P<records>[\d,]+) records \((?P<statuses>[^)]*)\), (?P<rate>[\d,]+) rows/s, "
    r"error (?P<errors>.*)$"
)
ERROR = re.compile(r"([\w-]+) (\d\.\d{4}) \(all (\d\.\d{4})\)")


@pytest.mark.slow
def test_the_jobs_stream_and_replay_with_a_line_a_batch(broker: str, adult: str, tmp_path: Path) -> None:
    path = write_config(broker, adult, tmp_path, "source.kafka.max_offsets_per_trigger=800")
    status, printed = finish(submit("stream", "--config", str(path)), tmp_path)
    assert status == 0, printed
    assert "Traceback" not in printed
    out = tmp_path / "out"
    accounts = assert_accounts_balance(out, PEOPLE).set_index("batch_id")
    totals = tables.metrics(out)[lambda rows: rows["key"].isna()].set_index(["batch_id", "learner"])

    lines = [match for line in printed.splitlines() if (match := LINE.search(line))]
    assert [int(match["batch"]) for match in lines] == list(accounts.index)
    for match in lines:
        batch = int(match["batch"])
        count = int(match["records"].replace(",", ""))
        assert count == accounts.loc[batch, "records"]
        assert match["statuses"] == f"{count:,} learned"
        assert int(match["rate"].replace(",", "")) > 0
        errors = {name: (now, overall) for name, now, overall in ERROR.findall(match["errors"])}
        assert errors == {
            learner["name"]: (f"{row['batch_error']:.4f}", f"{row['error']:.4f}")
            for learner in LEARNERS
            for row in [totals.loc[(batch, learner["name"])]]
        }

    options = ["--config", str(path), "--set", f"output.path={tmp_path / 'replayed'}"]
    status, printed = finish(submit("replay", *options), tmp_path)
    assert status == 0, printed
    found = [match for line in printed.splitlines() if (match := LINE.search(line))]
    assert [match["batch"] for match in found] == ["0"]
    for read in (tables.latest_models, lambda folder: tables.metrics(folder, latest=True)):
        mine, other = by_key(read(out)), by_key(read(tmp_path / "replayed"))
        assert_frame_equal(mine, other, check_exact=True)

    # Refused, for it is there already: one line and status 1.
    status, printed = finish(submit("replay", *options), tmp_path)
    assert status == 1
    assert palearn_lines(printed) == [
        f"palearn: {tmp_path / 'replayed'} is not empty; a replay writes a whole history, give it a new folder"
    ]
    assert "Traceback" not in printed


def test_a_wrong_configuration_is_told_without_starting_spark(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("source: {kafka: {bootstrap_servers: x, topics: [a]}}\nlerners: []\n")
    status, printed = finish(submit("stream", "--config", str(path), packages=None), tmp_path)
    assert status == 1
    assert [line for line in palearn_lines(printed) if "did you mean 'learners'?" in line] != []
    assert "Traceback" not in printed


@pytest.mark.slow
def test_spark_without_the_connector_is_told_what_to_add(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 1)
    path = write_config(broker, topic, tmp_path)
    status, printed = finish(submit("stream", "--config", str(path), packages=None), tmp_path)
    assert status == 1
    assert palearn_lines(printed) == [
        f"palearn: Spark has no Kafka connector; run spark-submit --packages {CONNECTOR} …"
    ]


#: Prints the settings that a job's session ended up with.
SETTINGS = """\
from pathlib import Path
from palearn.spark.session import session
from tests.spark.conftest import config
spark = session(config("127.0.0.1:9", "none", Path("none"), "state.partitions=3"), name="a name")
for key in ("spark.master", "spark.sql.shuffle.partitions", "spark.sql.streaming.minBatchesToRetain"):
    print(key, spark.conf.get(key))
"""


def test_what_spark_submit_is_given_wins_over_defaults(tmp_path: Path) -> None:
    script = tmp_path / "settings.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{SETTINGS}")
    command = submit("stream", conf=("spark.sql.streaming.minBatchesToRetain=7", "spark.sql.shuffle.partitions=5"))
    command = [*command[:-1], str(script)]
    command[command.index("local[2]")] = "local[1]"
    status, printed = finish(command, tmp_path)
    assert status == 0, printed
    found = dict(line.split() for line in printed.splitlines() if line.startswith("spark."))
    assert found == {
        "spark.master": "local[1]",
        "spark.sql.shuffle.partitions": "5",
        "spark.sql.streaming.minBatchesToRetain": "7",
    }


@pytest.mark.slow
def test_executors_with_their_own_working_folder_write_to_a_relative_output(
    broker: str, topic: str, tmp_path: Path
) -> None:
    make_topic(broker, topic, 1)
    send(broker, [(topic, 0, b"k", b'{"label": 1, "features": {"x": 1}}')])
    path = write_config(broker, topic, tmp_path, "output.path=out", "checkpoint=checkpoint")
    cluster = ("--master", "local-cluster[1,1,1024]")
    command = submit("stream", "--config", str(path), *cluster, conf=("spark.executor.memory=512m",))
    process = start(command, tmp_path, SPARK_WORKER_DIR=str(tmp_path / "work"))
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    assert assert_accounts_balance(tmp_path / "out", 1)["learned"].tolist() == [1]
    assert set(tables.latest_models(tmp_path / "out")["key"]) == {"k"}

"""A Spark standalone cluster of a master and two workers, and the job as make package packs it for one."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.clusters import SPARK_HOME, environment, standalone
from tests.spark.conftest import PEOPLE, assert_accounts_balance, assert_same_outputs, batches, config, stream
from tests.spark.test_jobs import ROOT, write_config

DOCUMENT = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")

#: Stands on the path of the workers' Python: writes down the file of all code that is run as a module there.
WITNESS = """\
import sys

def witness(event, arguments, log=open("modules.txt", "a", buffering=1)):
    if event == "exec":
        print(arguments[0].co_filename, file=log)

sys.addaudithook(witness)
"""


@pytest.fixture(scope="module")
def archive() -> Path:
    """Return the archive for workers, of the sources as they are now; from the environment that runs the tests."""
    made = ["make", f"VENV={sys.prefix}", f"--old-file={sys.prefix}/.stamp", "package"]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "dist/palearn-env.tar.gz"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Address of the master of two workers."""
    with standalone(tmp_path) as url:
        yield url


def documented(url: str, archive: Path, config_file: Path) -> tuple[dict[str, str], list[str]]:
    """Return the variables and the command of docs/cluster.md, for this cluster and from any folder."""
    block = r"^export (.*)\n(\.venv/bin/spark-submit --master spark://(?:.*\\\n)+.*)\n```$"
    ((variables, command),) = re.findall(block, DOCUMENT, re.MULTILINE)
    here = {
        ".venv/bin/spark-submit": str(Path(sys.executable).with_name("spark-submit")),
        "$PWD/.venv/bin/python": sys.executable,
        "spark://HOST:7077": url,
        "dist/palearn-env.tar.gz#environment": f"{archive}#environment",
        "jobs/stream.py": str(ROOT / "jobs/stream.py"),
        "job.yaml": str(config_file),
    }
    exported = dict(item.split("=") for item in variables.split())
    words = shlex.split(command.replace("\\\n", " "))
    assert here.keys() <= {*words, *exported.values()}
    return {name: here.get(value, value) for name, value in exported.items()}, [here.get(word, word) for word in words]


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
def test_a_packed_job_on_a_cluster_writes_what_local_mode_writes(
    broker: str, adult: str, archive: Path, cluster: str, tmp_path: Path
) -> None:
    (tmp_path / "witness").mkdir()
    (tmp_path / "witness/sitecustomize.py").write_text(WITNESS)
    limit = "source.kafka.max_offsets_per_trigger=800"
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.scheduler.minRegisteredResourcesRatio": "1",  # no batch before both workers are there
        "spark.executorEnv.PYTHONPATH": str(tmp_path / "witness"),
    }
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    variables, (program, *options) = documented(cluster, archive, write_config(broker, adult, tmp_path, limit))
    done = subprocess.run(
        [program, *conf, *options], cwd=tmp_path, env=environment() | variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert_accounts_balance(tmp_path / "out", PEOPLE)
    assert len(batches(tmp_path / "out", "models")) >= 3

    (tmp_path / "local").mkdir()
    assert_same_outputs(tmp_path / "out", stream(config(broker, adult, tmp_path / "local", limit)))

    for number in (1, 2):
        (executor,) = (tmp_path / f"worker-{number}").glob("app-*/*/")
        ran = {Path(line) for line in (executor / "modules.txt").read_text(encoding="utf-8").splitlines()}
        (packed,) = executor.glob("environment/lib/python*/site-packages/palearn")
        assert {packed / "engine/bucket.py", packed / "models/codec.py", packed / "spark/operator.py"} <= ran
        assert not [path for path in ran if path.is_relative_to(ROOT / "palearn")], "the source tree was on the path"


@pytest.mark.parametrize("master", ["spark", "yarn", "k8s"])
def test_spark_knows_the_options_of_the_documented_commands(master: str) -> None:
    """What stands before the script is parsed by spark-submit, which then only tells its version."""
    (options,) = re.findall(rf"^\.venv/bin/spark-submit (--master {master}\b(?:.*\\\n)+)", DOCUMENT, re.MULTILINE)
    command = [str(SPARK_HOME / "bin/spark-submit"), *shlex.split(options.replace("\\\n", " ")), "--version"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

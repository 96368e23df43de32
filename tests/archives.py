"""Archives of the classes that Spark's and Kafka's JVMs load, for the JVMs that tests start.

Half of what a job of a few seconds costs is its JVM finding, checking and linking the same twenty thousand classes. One
that ends can leave them in an archive that the next ones map instead (``-XX:ArchiveClassesAtExit``). ``python -m
tests.archives FOLDER`` runs a broker and a job for that; whoever starts before it is done does without.
"""

import os
import sys
import tempfile
from pathlib import Path

from palearn.kafka import local_broker

#: The JVMs of tests live for seconds: what compiling once more would gain never pays, and takes a third of their time.
ONCE = "-XX:TieredStopAtLevel=1"
#: The variable that gives a JVM its options -> the archive of its classes.
FILES = {"SPARK_SUBMIT_OPTS": "spark.jsa", "KAFKA_OPTS": "kafka.jsa"}


def using(folder: Path) -> dict[str, str]:
    """Return the variables with which JVMs use the archives of a folder, if they are there; they say nothing of it."""
    return {name: f"{ONCE} -Xlog:disable -XX:SharedArchiveFile={folder / file}" for name, file in FILES.items()}


def make(folder: Path) -> None:
    """Make the archives; each is there whole or not at all."""
    from tests.conftest import free_port_pair
    from tests.spark.conftest import MOST, people, produce_people
    from tests.spark.test_jobs import finish, submit, write_config

    with tempfile.TemporaryDirectory(dir=folder) as name:
        made, port = Path(name), free_port_pair()
        for variable, file in FILES.items():
            os.environ[variable] = f"{ONCE} -Xlog:disable -XX:ArchiveClassesAtExit={made / file}"
        local_broker.start(port, made / "broker")
        try:
            produce_people(f"127.0.0.1:{port}", "people", made / "people.jsonl", people(600))
            config = write_config(f"127.0.0.1:{port}", "people", made, MOST)
            status, printed = finish(submit("stream", "--config", str(config)), made)
            assert status == 0, printed
        finally:
            local_broker.stop(port, made / "broker")
        for file in FILES.values():
            (made / file).rename(folder / file)


if __name__ == "__main__":
    make(Path(sys.argv[1]))

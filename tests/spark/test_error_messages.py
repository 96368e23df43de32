"""Failures as sentences: the cause is found in nested traces, and never nothing is said.

``python -m tests.spark.test_error_messages`` writes the table of docs/operations.md anew.
"""

import errno
import json
import logging
import os
import re
from pathlib import Path

import pytest

from palearn.cli.failures import JsonLines
from palearn.config import Config, parse
from palearn.errors import ConfigError, StreamError
from palearn.spark.error_messages import cause, deepest, explain, in_one_sentence, text_of
from palearn.spark.known_failures import AGAIN, KNOWN, documented

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
BEGIN, END = "<!-- failures -->\n", "<!-- /failures -->\n"


def job() -> Config:
    return parse(
        {
            "source": {"kafka": {"bootstrap_servers": "b:9092", "topics": ["t"]}},
            "learners": [{"algorithm": "arow"}],
            "output": {"path": "/data/out"},
            "checkpoint": "/data/checkpoint",
        }
    )


#: What a foreachBatch callback's failure looks like in Java's words: Python's trace inside of Java's.
PROXY = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised by the Python Proxy. \
Return Message: Traceback (most recent call last):
  File "py4j/clientserver.py", line 617, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
{cause}
 SQLSTATE: XXKST

JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query
\tat org.apache.spark.sql.execution.streaming.StreamExecution.runStream(StreamExecution.scala:1)
Caused by: py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback
"""
JAVA = """\


JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)
Caused by: java.lang.RuntimeException: outer
\tat x
Caused by: {cause}
\t... 1 more
"""
#: What is written, and what the sentence must hold; one of each kind at least.
SAID = [
    (JAVA.format(cause="java.io.IOException: No space left on device"), "disk_full", "Free some space"),
    (PROXY.format(cause="OSError: [Errno 30] Read-only file system: '/data/out/x'"), "read_only", "/data/out/x"),
    (PROXY.format(cause="OSError: [Errno 5] Input/output error: '/data/out/x'"), "disk_fails", "dmesg"),
    (PROXY.format(cause="PermissionError: [Errno 13] Permission denied: '/o'"), "no_permission", "'/o'"),
    (JAVA.format(cause="java.io.FileNotFoundException: /c/offsets/.0.tmp (Permission denied)"), "no_permission", "/c/"),
    (
        "\n\nKafka option 'kafka.auto.offset.reset' is not supported.\nInstead set 'startingOffsets'",
        "source_option",
        "kafka.auto.offset.reset",
    ),
    (JAVA.format(cause='java.lang.NumberFormatException: For input string: "ten"'), "no_number", '"ten"'),
    (
        JAVA.format(cause="org.apache.kafka.common.config.ConfigException: Invalid value x for configuration y"),
        "kafka_option",
        "Invalid value x",
    ),
    (
        JAVA.format(
            cause="org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [t]"
        ),
        "kafka_refuses",
        "source.kafka.access",
    ),
    (JAVA.format(cause="org.apache.kafka.common.errors.TimeoutException: x"), "broker_silent", "b:9092"),
    (
        JAVA.format(cause="org.apache.kafka.common.errors.UnknownTopicOrPartitionException: no"),
        "unknown_topic",
        "source.kafka.topics",
    ),
    (JAVA.format(cause="java.lang.OutOfMemoryError: Java heap space"), "java_memory", "--driver-memory"),
    (JAVA.format(cause="java.lang.NullPointerException: invalid null input: name"), "no_user", "/etc/passwd"),
    ("Py4JNetworkError: Answer from Java side is empty", "java_gone", "Java process ended"),
    (
        JAVA.format(cause='org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "gs2"'),
        "file_system",
        "gs2",
    ),
    (
        JAVA.format(cause="org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
        "worker_killed",
        "max_offsets_per_trigger",
    ),
    ("ExecutorLostFailure (executor 1 exited)", "executor_lost", "executor's log"),
    ("assertion failed: If startingOffsets contains specific offsets, you must x", "offsets_of_a_range", "-2"),
    ("OSError: [Errno 36] File name too long: 'aaa'", "name_too_long", "shorter"),
    ("OSError: [Errno 24] Too many open files", "open_files", "ulimit"),
    ("java.net.BindException: Address already in use", "port_taken", "port"),
    ("java.net.UnknownHostException: kafka-7", "name_unknown", "kafka-7"),
    ("MemoryError: cannot allocate", "python_memory", "max_offsets_per_trigger"),
    ("kafka.errors.MessageSizeTooLargeError: 2 MB", "record_too_large", "max.message.bytes"),
    ("[CANNOT_LOAD_STATE_STORE.X]\nCaused by: java.io.IOException: bad zip", "damaged_state", "bad zip"),
    ("Checksum error: file:/c/1.delta", "damaged_checksum", "file:/c/1.delta"),
    ("FileNotFoundError: [Errno 2] out/_staging/0-1", "two_jobs", "another job"),
    ("[CONCURRENT_STREAM_LOG_UPDATE] x", "two_queries", "another job"),
    ("ModuleNotFoundError: No module named 'palearn'", "worker_python", "PYSPARK_PYTHON"),
    ("Some data may have been lost because\nReason: offset 3 is gone", "records_gone", "offset 3 is gone"),
]


@pytest.mark.parametrize(("text", "name", "part"), SAID, ids=[f"{name}-{i}" for i, (_, name, _) in enumerate(SAID)])
def test_a_known_failure_is_one_sentence(text, name, part):
    found = cause(text, job(), job=True)
    assert (found.name, part in found.sentence) == (name, True), found
    assert "\n" not in found.sentence
    assert len(found.sentence) < 1200
    failure = next(failure for failure in KNOWN if failure.name == name)
    assert (AGAIN in found.sentence) == failure.passes


def test_every_known_failure_is_among_them():
    assert {failure.name for failure in KNOWN} == {name for _, name, _ in SAID}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PROXY.format(cause="KeyError: 'x'"), "KeyError: 'x'"),
        (JAVA.format(cause="java.lang.IllegalStateException: deep down"), "IllegalStateException: deep down"),
        (JAVA.format(cause="java.lang.StackOverflowError"), "StackOverflowError"),
        ("\n  \n;\nthe first line that says something\nmore", "the first line that says something"),
        ("", "nothing is said of its cause"),
        (
            "Traceback (most recent call last):\n  File\nValueError: root\n\nDuring handling of the above exception, "
            "another exception occurred:\n\nTraceback (most recent call last):\n  File\nRuntimeError: later",
            "ValueError: root",
        ),
    ],
)
def test_an_unknown_failure_is_its_deepest_message(text, expected):
    assert deepest(text) == expected
    found = cause(text, job(), job=True)
    assert found.name == "unknown"
    assert expected in found.sentence
    assert "start the job again" not in found.sentence
    assert "--debug" in found.sentence


def test_causes_of_python_are_looked_at():
    error = RuntimeError("the batch failed")
    error.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/o/x")
    assert "No space left" in text_of(error)
    assert "a disk is full" in explain(error, job())


def test_palearn_s_own_error_says_it_itself():
    assert explain(ConfigError("x: y")) == "x: y"
    told = cause(PROXY.format(cause="palearn.errors.StreamError: the folder is gone"), job(), job=True)
    assert told.sentence == "the folder is gone"


def test_a_fault_of_palearn_keeps_its_trace():
    with pytest.raises(ZeroDivisionError), in_one_sentence("the stream stopped"):
        raise ZeroDivisionError
    with pytest.raises(StreamError, match=r"^the stream stopped: there is no permission .*'/x'"):
        with in_one_sentence("the stream stopped"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/x")


def test_operations_has_the_table_of_failures():
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0] == documented()


def test_patterns_of_failures_give_a_detail():
    for failure in KNOWN:
        assert "{detail}" not in failure.do  # one place for what was found: the cause


# -- the command ---------------------------------------------------------------------------------------------


def test_a_fault_of_palearn_is_one_line_and_its_trace_with_debug(run, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr("palearn.tables.compaction.compact", broken)
    status, out, err = run("compact", "out")
    assert (status, out) == (1, "")
    assert err.splitlines() == [
        "palearn: unexpected fault, please report it: ZeroDivisionError: of nothing (--debug shows the whole trace)"
    ]
    status, _, err = run("compact", "out", "--debug")
    assert status == 1
    assert "Traceback" in err
    assert "in broken" in err


def test_a_failure_of_the_system_is_one_line(run, monkeypatch):
    def broken(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/o/models")

    monkeypatch.setattr("palearn.tables.compaction.compact", broken)
    status, _, err = run("compact", "out")
    assert status == 1
    assert len(err.splitlines()) == 1
    assert "there is no permission" in err
    assert "/o/models" in err
    assert "please report" not in err


def test_a_failure_is_one_json_object_for_collectors(run):
    status, _, err = run("compact", "nowhere", "--log-format", "json")
    assert status == 1
    found = json.loads(err)
    assert (found["level"], found["event"]) == ("error", "failed")
    assert "nowhere" in found["message"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", found["time"])


def test_a_line_of_the_log_is_one_json_object():
    record = logging.LogRecord("palearn.stream", logging.INFO, "x", 1, "batch %d:\n%s", (3, "ü"), None)
    record.__dict__ |= {"event": "batch", "batch": 3, "figures": {"records": 5}}
    line = JsonLines().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("time").endswith("Z")
    assert found == {"level": "info", "event": "batch", "message": "batch 3:\nü", "batch": 3, "figures": {"records": 5}}


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + BEGIN + documented() + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()

"""SIGKILL at every request that writes, before and after the store did it; then again, and nothing is wrong.

``PALEARN_CRASH_STEP=1`` takes every request; by default every eleventh one.
"""

import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from palearn import tables
from palearn.tables import local_store
from palearn.tables.reading import Tables
from tests.proxy import Proxy, Trap, proxied

ROOT = Path(__file__).parents[2]
BATCHES, PARTS = 2, 2
STEP = int(os.environ.get("PALEARN_CRASH_STEP", "11"))

#: A run of a job that writes what is missing of its batches, as the sink does, once it is told to begin.
RUN = """\
import sys
from tests.tables.test_crashes import run
sys.stdin.readline()
run(sys.argv[1], sys.argv[2])
"""


def run(out: str, format: Any) -> None:
    """Write the batches that are not whole, in the sink's order."""
    from palearn.tables.store import Store

    store = Store(out, format, "owner")
    for batch in range(BATCHES):
        if store.is_whole(batch):
            continue
        store.begin()
        target, files = store.target(batch), {}
        for part in range(PARTS):
            for name, table in rows(batch, part).items():
                file = target.name(f"part-{part}")
                files[f"{name}/{file}"] = store.folder.write_table(table, *target.place(name), file)
        store.commit(batch, {}, files)


def rows(batch: int, part: int) -> dict[str, Any]:
    import pyarrow as pa

    from palearn.tables import schemas

    own = {"key": f"k{part}", "learner": "x", "last_topic": "t", "last_partition": part, "last_offset": batch}
    return {
        "models": pa.Table.from_pylist([{**own, "features": ["a"]}], schemas.MODELS),
        "metrics": pa.Table.from_pylist([{**own, "f1": [("a", 0.5)]}], schemas.METRICS),
        "rejected": pa.Table.from_pylist([{"topic": "t", "partition": part, "offset": batch}], schemas.REJECTED),
    }


def counted(out: str) -> dict[str, Counter[int]]:
    """Return how many rows a reader finds of each table and batch."""
    found = {}
    for name in ("models", "metrics", "rejected"):
        whole = Tables(out).batches(name)
        found[name] = Counter(tables.read(out, name)["batch_id"].tolist()) if whole else Counter()
    return found


def attempt(out: str, format: str, port: int, proxy: Proxy, n: int, *, before: bool) -> int:
    """Run in a process that is killed at its ``n``-th writing request; return its status."""
    environment = os.environ | local_store.environment(port) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN, out, format]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        proxy.reset(Trap(process.pid, n, before))
        _, printed = process.communicate(b"\n")
    assert process.returncode in (0, -signal.SIGKILL), printed.decode()
    return process.returncode


@pytest.mark.parametrize("format", ["parquet", "delta"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_kill_at_any_writing_request_changes_nothing(
    format: str, before: bool, store_port: int, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {name: Counter({batch: PARTS for batch in range(BATCHES)}) for name in ("models", "metrics", "rejected")}
    with proxied(store_port) as proxy:
        out = f"{bucket}/none"
        assert attempt(out, format, proxy.port, proxy, 0, before=True) == 0
        total, killed = proxy.writes, 0
        assert total > 10
        assert counted(out) == whole
        for n in range(1, total + 1, STEP):
            out = f"{bucket}/{n}-{uuid.uuid4().hex[:6]}"
            status = attempt(out, format, proxy.port, proxy, n, before=before)
            killed += status == -signal.SIGKILL
            for found in counted(out).values():
                assert set(found.values()) <= {PARTS}, "a reader sees whole batches, whenever it looks"
            assert attempt(out, format, proxy.port, proxy, 0, before=True) == 0
            assert counted(out) == whole
            folder = Tables(out).folder
            for name in whole:
                there = {
                    f"{name}/{path}" for path in folder.sizes(name) if "_delta_log" not in path and ".parquet" in path
                }
                assert there == set(Tables(out).files(name)), "nothing is left over"
    assert killed == len(range(1, total + 1, STEP))

"""``palearn serve`` under load: single predictions a second, latency, memory, and how soon a new batch answers.

``python -m benchmarks.serve --json``: the models of 100,000 keys (2 learners; a key has about 26 of 123 features),
requests of 14 features for keys drawn uniformly, on keep-alive connections of this process. First as many as the
service takes, then a fixed rate: a request's time counts from when it was due, so that waiting is not left out.
Meanwhile a second batch, of a tenth of the keys, is moved into the table. Last come requests that are wrong in every
way.

The service has one core to itself where there are two (``taskset``); this process has the other. ``core us`` is what a
request costs of the service's core, whatever else runs on the machine.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.common import SEED, environment, show
from palearn import datasets
from palearn.engine import result_rows
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.engine.validation import Chunk
from palearn.learners import Learner
from palearn.models.state import Settings
from palearn.records import encode
from palearn.tables.folder import Folder
from palearn.tables.schemas import MODELS

BUCKETS, RECORDS = 64, 3


def write_batch(out: Path, batch: int, keys: int) -> None:
    """Write a batch of the models table: so many keys, each after a few records."""
    learners = (Learner("arow", "arow"), Learner("pa1", "pa1", options={"C": 0.1}))
    made = BucketConfig(Settings(), learners, tables=frozenset(("models",)))
    values = [encode(record) for record in datasets.a9a()]
    random = np.random.default_rng(SEED + batch)
    file = Folder(str(out)).table_file(MODELS, f"staged-{batch}", "part-00000.parquet")
    for names in np.array_split(np.arange(keys), BUCKETS):
        raw = [b"user-%06d" % key for key in np.repeat(names, RECORDS).tolist()]
        n = len(raw)
        chosen = [values[i] for i in random.integers(len(values), size=n).tolist()]
        bucket = Bucket(made, None, batch)
        bucket.learn(Chunk(raw, chosen, ["bench"] * n, np.zeros(n, np.int64), np.arange(n)))
        tables = bucket.results()
        file.add(result_rows.plain(pa.concat_tables([tables["models"]]), "models"))
    file.close()


def publish(out: Path, batch: int) -> None:
    """Move a staged batch to where readers see it."""
    (out / "models").mkdir(exist_ok=True)
    (out / f"staged-{batch}").rename(out / "models" / f"batch_id={batch}")


class Client:
    """A keep-alive connection that sends one request after the other."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "Client":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def post(self, body: bytes, path: bytes = b"/predict", method: bytes = b"POST") -> tuple[int, bytes]:
        """Return the status and the content of an answer."""
        head = b"%b %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (method, path, len(body))
        self._writer.write(head + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        size = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        return int(lines[0].split()[1]), await self._reader.readexactly(size)


def bodies(keys: int, n: int) -> list[bytes]:
    """Return requests of keys drawn uniformly."""
    random = np.random.default_rng(SEED)
    records = [json.loads(encode(record)) for record in datasets.a9a()]
    drawn = random.integers(keys, size=n).tolist()
    return [
        json.dumps({"key": f"user-{key:06d}", "features": records[i]["features"]}).encode()
        for key, i in zip(drawn, random.integers(len(records), size=n).tolist(), strict=True)
    ]


def core_seconds(pid: int) -> float:
    """Return what a process has had of a core."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def flood(port: int, pid: int, asked: list[bytes], seconds: float, connections: int) -> dict[str, float]:
    """Return requests a second, as many as the service takes, and what one costs."""
    done, stop = 0, time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal done
        async with Client(port) as one:
            i = number
            while time.perf_counter() < stop:
                status, _ = await one.post(asked[i % len(asked)])
                assert status == 200
                done += 1
                i += connections

    began, had = time.perf_counter(), core_seconds(pid)
    await asyncio.gather(*map(client, range(connections)))
    cost = (core_seconds(pid) - had) / done * 1e6
    return {"a second": done / (time.perf_counter() - began), "core us": cost, "a second of a core": 1e6 / cost}


async def paced(port: int, asked: list[bytes], rate: int, seconds: float, out: Path | None) -> dict[str, Any]:
    """Return latencies at a fixed rate, in milliseconds, and how soon a batch that came meanwhile answered."""
    total, connections = int(rate * seconds), 32
    times, failed, first_new = np.zeros(total), 0, 0.0
    due = time.perf_counter() + 0.1 + np.arange(total) / rate
    published = 0.0

    async def client(number: int) -> None:
        nonlocal failed, first_new
        async with Client(port) as one:
            for i in range(number, total, connections):
                if (wait := due[i] - time.perf_counter()) > 0:
                    await asyncio.sleep(wait)
                status, content = await one.post(asked[i % len(asked)])
                now = time.perf_counter()
                times[i] = now - due[i]
                failed += status != 200
                if published and not first_new and b'"batch_id":1' in content:
                    first_new = now

    async def writer() -> None:
        nonlocal published
        if out is not None:
            await asyncio.sleep(seconds / 3)
            publish(out, 1)
            published = time.perf_counter()

    await asyncio.gather(writer(), *map(client, range(connections)))
    p50, p99, most = np.percentile(times * 1000, [50, 99, 100]).tolist()
    found = {"rate": rate, "p50 ms": p50, "p99 ms": p99, "max ms": most, "failed": failed}
    return found | ({"new batch answers after s": first_new - published} if out is not None else {})


async def hostile(port: int, n: int) -> dict[str, int]:
    """Send requests that are wrong; return how many answers were 4xx with a sentence, and how many were not."""
    random = np.random.default_rng(SEED)
    told = other = 0
    for i in range(n):
        body, path, method = wrong(random, i)
        try:
            async with Client(port) as one:
                status, content = await asyncio.wait_for(one.post(body, path, method), 10)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            status, content = 0, b""
        fine = 400 <= status < 500 and len(content) > 10
        told, other = told + fine, other + (not fine)
    return {"requests": n, "4xx with a sentence": told, "other": other}


def wrong(random: np.random.Generator, i: int) -> tuple[bytes, bytes, bytes]:
    """Return the body, path and method of a request that is wrong."""
    good = b'{"key":"user-000001","features":{"f":1}}'
    cut = good[: int(random.integers(len(good)))]
    bodies = [
        cut, bytes(random.integers(256, size=60, dtype=np.uint8)), b"[" * 100_000, b'{"a":' * 50_000, b"null", b"[]",
        b"", b'{"key":"user-000001"}', b'{"key":null,"features":{}}', b'{"key":"nobody","features":{}}',
        b'{"key":"user-000001","features":{"f":NaN}}', b'{"key":"user-000001","features":{"f":1e999}}',
        b'{"key":"user-000001","features":[1]}', b'{"key":{},"features":{}}', b'{"key":"\xff","features":{}}',
        b'{"key":"\\ud800","features":{}}', b'{"instances":3}', b'{"instances":[3]}', b'{"instances":[{}]}',
        b'{"instances":[' + b"{}," * 2_000 + b"{}]}", b'{"key":"user-000001","features":{},"learner":"nobody"}',
        b'{"key":"user-000001","features":{"(bias)":1}}', b'{"key":"user-000001","features":{"' + b"f" * 600 + b'":1}}',
        b'{"key":"user-000001","views":{"a":{}}}', b'{"key":"user-000001","label":{},"features":{}}',
        b'{"key":"user-000001","instances":[],"features":{}}',
        b'{"key":"user-000001","features":{"f":' + b"9" * 400 + b"}}",
    ]  # fmt: skip
    paths = [b"/models/nobody", b"/models/", b"/models/user-000001?top=0", b"/models/user-000001?learner=x", b"/%ff",
             b"/predict/", b"/../../etc/passwd", b"/docs/assets/../../x", b"/models/%ff%00"]  # fmt: skip
    if i % 4 == 3:
        return b"", paths[i // 4 % len(paths)], b"GET"
    if i % 16 == 2:
        return good, b"/predict", [b"GET", b"PUT", b"DELETE", b"PATCH"][i // 16 % 4]
    return bodies[i % len(bodies)], b"/predict", b"POST"


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def wait_until_ready(port: int) -> float:
    """Return the seconds until the models are read."""
    began = time.perf_counter()
    while time.perf_counter() - began < 300:
        try:
            async with Client(port) as one:
                if (await one.post(b"", b"/ready", b"GET"))[0] == 200:
                    return time.perf_counter() - began
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise TimeoutError("the service is not ready after 300 s")


async def measure(port: int, pid: int, out: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Return all figures."""
    found: dict[str, Any] = {"ready after s": await wait_until_ready(port)}
    asked = bodies(given.keys, 20_000)
    await flood(port, pid, asked, 2.0, 4)  # kernels are compiled or read
    found["most a second"] = {str(n): await flood(port, pid, asked, given.seconds, n) for n in (1, 4, 16)}
    found["paced"] = await paced(port, asked, given.rate, given.seconds, None)
    found["paced, with a new batch"] = await paced(port, asked, given.rate, given.seconds, out)
    found["hostile"] = await hostile(port, given.hostile)
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found["memory MB"] = {name: int(status.split(f"{name}:")[1].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--hostile", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="palearn-bench-"))
    server = None
    try:
        write_batch(folder, 0, given.keys)
        publish(folder, 0)
        write_batch(folder, 1, given.keys // 10)
        port = free_port()
        pin = ["taskset", "-c", "0"] if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else []
        command = [*pin, sys.executable, "-m", "palearn", "serve", str(folder), "--port", str(port)]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        found = asyncio.run(measure(port, server.pid, folder, given))
    finally:
        if server is not None:
            server.send_signal(signal.SIGTERM)
            server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
    show({"environment": environment(), **found}, as_json=given.json)


if __name__ == "__main__":
    main()

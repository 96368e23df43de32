"""The job beside what people use today, on the same topic in one run: Quix Streams, and a consumer around River.

``python -m benchmarks.others --json``: 500,000 JSON records of 14 named features, 20,000 keys. The others run as two
processes of a consumer group (``benchmarks/consumers``), in a venv that this makes; their rates are from the first
record of either to the last. The job's is as in :mod:`benchmarks.stream`, with PA-I.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.common import drawn, fill_topic, own_broker, topic_command
from benchmarks.stream import configuration, palearn, rate, run
from palearn.spark.session import session

PROCESSES = 2
PACKAGES = ("quixstreams==3.28.1", "river==0.26.1", "kafka-python[zstd]==3.0.12")
SCRIPTS = Path(__file__).parent / "consumers"


def made_venv(folder: Path) -> Path:
    """Return the Python of a venv with the others' packages."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin/python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def consume(python: Path, script: str, folder: Path, *arguments: str, state: bool = False) -> dict[str, float]:
    """Return what the processes of a consumer group did with the topic: records, mistakes and rows a second."""
    folder.mkdir()
    running = []
    for number in range(PROCESSES):
        own = [str(folder / f"state-{number}")] if state else []
        command = [str(python), str(SCRIPTS / script), *arguments, *own]
        running.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True))
    done = []
    for process in running:
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{script} ended with {process.returncode}")
        done.append(json.loads(output.splitlines()[-1]))
    busy = [d for d in done if d["records"]]
    records = sum(d["records"] for d in busy)
    seconds = max(d["last"] for d in busy) - min(d["first"] for d in busy)
    return {"records": records, "mistakes": sum(d["mistakes"] for d in busy), "rows_per_s": records / seconds}


def measure(records: int, keys: int, rounds: int) -> dict[str, Any]:
    """Run the job and the others in turn; return the best round of each, and ratios."""
    rates: dict[str, list[float]] = {"palearn": [], "quix": [], "river": []}
    with own_broker() as (servers, scratch):
        python = made_venv(scratch / "venv")
        fill_topic(servers, "bench", drawn(records, keys))
        learners = [{"algorithm": "pa1"}]
        spark = session(configuration(servers, "bench", scratch, 100_000, learners), name="bench", master="local[2]")
        spark.sparkContext.setLogLevel("ERROR")
        for round_ in range(rounds):
            config = configuration(servers, "bench", scratch / f"palearn-{round_}", 100_000, learners)
            rates["palearn"].append(rate(run(spark, palearn, config)))
            if round_:
                continue  # a consumer group takes a topic once
            for name, script, state in (("quix", "quix.py", True), ("river", "river_loop.py", False)):
                done = consume(python, script, scratch / name, servers, "bench", state=state)
                if done["records"] < records:
                    raise RuntimeError(f"{name} took {done['records']} of {records} records")
                rates[name].append(done["rows_per_s"])
    best = {name: max(found) for name, found in rates.items()}
    ratios = {f"palearn / {name}": best["palearn"] / best[name] for name in ("quix", "river")}
    return {"rows_per_s": best, "all_rows_per_s": rates, "ratios": ratios}


if __name__ == "__main__":
    topic_command(__doc__, measure, others=list(PACKAGES), processes=PROCESSES)

"""``make demo-s3``: checkpoint and Delta tables in an object store, a replay that must agree, three other readers."""

import os
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from palearn.cli.demo import steps
from palearn.errors import MissingExtraError
from palearn.report import overview
from palearn.tables import local_store, object_stores, reading

PORT, STORE_PORT = 29192, 29492
TOPIC = "adult"
OUT, REPLAY = (f"s3://{local_store.BUCKET}/demo/{name}" for name in ("out", "replay"))
TABLES = ("models", "metrics", "batches")


def demo(console: Console, checkout: Path) -> None:
    """Run the demonstration in a checkout; everything it makes is in ``.demo-s3``."""
    local_store.stop(STORE_PORT, checkout / ".demo-s3" / "store")
    folder = steps.fresh_folder(checkout, "demo-s3", PORT)
    began = time.monotonic()
    with steps.step(console, "1/6  starting an object store (SeaweedFS, which speaks S3)"):
        local_store.start(STORE_PORT, folder / "store")
    os.environ.update(local_store.environment(STORE_PORT))
    try:
        with steps.running_broker(console, "2/6", PORT, folder / "broker"):
            _stream_and_replay(console, checkout, folder)
        console.print(overview.errors(overview.summary(OUT)))
        steps.require_same(OUT, REPLAY)
        console.print("     replay and stream: models and metrics are equal bit for bit", style="bold green")
        with steps.step(console, "6/6  the same tables, read by others"):
            counts = {name: _counts(name) for name in TABLES}
        for name, found in counts.items():
            told = ", ".join(f"{reader} {count:,}" for reader, count in found.items())
            console.print(f"     {name}: {told} rows", highlight=False)
    finally:
        with steps.step(console, "     stopping the store"):
            local_store.stop(STORE_PORT, folder / "store")
    console.print(f"\nDone in {time.monotonic() - began:.0f} s. Next: docs/stores.md.")


def _stream_and_replay(console: Console, checkout: Path, folder: Path) -> None:
    steps.produce_adult(console, "3/6", PORT, TOPIC)
    config = checkout / "conf" / "demo-s3.yaml"
    console.print("4/6  palearn stream --config conf/demo-s3.yaml: checkpoint and Delta tables are in the store")
    steps.command(console, config, folder / "stream.log", "stream")
    console.print("5/6  palearn replay: the same topic again, as one batch")
    steps.command(console, config, folder / "replay.log", "replay", "--set", f"output.path={REPLAY}")


def _counts(table: str) -> dict[str, int]:
    """Return how many rows each reader finds in a table.

    Raises
    ------
    StreamError
        Two of them differ.
    """
    try:
        import duckdb
        import polars
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"the demonstration reads with {error.name}: pip install {error.name}") from None
    from deltalake import DeltaTable

    path, options = f"{OUT}/{table}", object_stores.delta_options(OUT)
    dataset: Any = DeltaTable(path, storage_options=options).to_pyarrow_dataset()
    (found,) = duckdb.connect().register("dataset", dataset).execute("SELECT count(*) FROM dataset").fetchall()
    counts = {
        "palearn": len(reading.read(OUT, table)),
        "DuckDB": int(found[0]),
        "Polars": polars.scan_delta(path, storage_options=options).collect().height,
        "pyarrow": int(dataset.count_rows()),
    }
    steps.require_equal(counts)
    return counts

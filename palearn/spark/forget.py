"""``palearn forget``: a key's models, what waits for it and its rows leave a stopped job.

The tables are rewritten without the key's rows, and so are the models that the job began with. Spark's state cannot
be written from outside: what is asked for stands in the checkpoint's ``palearn.json`` (``forget``: bucket, key, and the
bucket's record count then), and whoever reads the state leaves the key out, as far as its last record is older. The
first batch that touches the bucket writes its state without the key; Spark's files of earlier batches go as it clears
them (``spark.sql.streaming.minBatchesToRetain``).
"""

from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from palearn.config import Config
from palearn.errors import ConfigError
from palearn.models import codec
from palearn.models.keyed import Models
from palearn.spark import error_messages
from palearn.spark.ascii_codec import from_text
from palearn.spark.checkpoint import KNOWN, has_start, known_of, last_commit, start_of
from palearn.spark.operator import state_of, with_bucket_context
from palearn.spark.session import reader
from palearn.spark.source import bucket_of
from palearn.tables.erasure import erase
from palearn.tables.folder import Folder
from palearn.tables.locks import locked


def forget(config: Config, key: str, *, master: str | None = None, spark: SparkSession | None = None) -> dict[str, Any]:
    """Forget a key of a stopped job; return the rows that were removed, by table, and whether the state had the key.

    Raises
    ------
    ConfigError
        The job runs, or its output is not on a disk that can exchange folders.
    """
    checkpoint, output = Folder(config.checkpoint), Folder(config.output.path)
    known = known_of(checkpoint)
    with locked(checkpoint), locked(output, "_palearn"), error_messages.in_one_sentence("nothing is forgotten", config):
        rows = erase(output, key)
        spark = spark or reader(name="palearn forget", master=master, path=checkpoint.path)
        buckets = known["fingerprint"]["state"]["buckets"]
        number = spark.range(1).select(bucket_of(F.lit(bytearray(key.encode())), buckets).alias("b")).collect()[0]["b"]
        found = _of_start(checkpoint, number, key)
        if last_commit(checkpoint) is not None:
            for row in state_of(spark, checkpoint).where(F.col("bucket") == number).select("blob").collect():
                with with_bucket_context(number):
                    models = codec.decode(from_text(row["blob"]))
                if key in models.index:
                    asked = known.get("forget", {})
                    asked.setdefault(str(number), {})[key] = int(models.clock)
                    checkpoint.write(known | {"forget": asked}, KNOWN)
                    found = True
    if not rows and not found:
        raise ConfigError(f"neither {output.path} nor {checkpoint.path} has the key {key!r}")
    return {"key": key, "rows": rows, "state": found}


def _of_start(checkpoint: Folder, number: int, key: str) -> bool:
    """Remove a key from the models that a job began with; say whether it was there."""
    blob = start_of(checkpoint, number) if has_start(checkpoint) else None
    models = None if blob is None else codec.decode(blob)
    if models is None or key not in models.index:
        return False
    checkpoint.write_bytes(codec.encode(without(models, [key])), "start", f"{number}.paln")
    return True


def without(models: Models, keys: list[str]) -> Models:
    """Return the models of all other keys."""
    gone = [models.index[key] for key in keys]
    return models.of_keys(np.setdiff1d(np.arange(len(models.keys)), gone))

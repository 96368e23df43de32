"""The columns of the output tables: their names, types and order."""

import pyarrow as pa

#: What can happen to a record; each batch counts them, and every record has exactly one.
STATUSES = ("learned", "scored", "pending", "duplicate", "rejected", "expired")

MODELS = pa.schema(
    [
        ("key", pa.string()),
        ("learner", pa.string()),
        ("algorithm", pa.string()),
        ("params", pa.string()),
        ("n_seen", pa.int64()),
        ("n_learned", pa.int64()),
        ("n_updates", pa.int64()),
        ("labels", pa.list_(pa.string())),
        ("features", pa.list_(pa.string())),
        ("weights", pa.list_(pa.float64())),
        ("variances", pa.list_(pa.float64())),
        ("calibration", pa.list_(pa.float64())),
        ("format_version", pa.int32()),
        ("updated_batch", pa.int64()),
        ("last_topic", pa.string()),
        ("last_partition", pa.int32()),
        ("last_offset", pa.int64()),
    ]
)
METRICS = pa.schema(
    [
        ("key", pa.string()),
        ("learner", pa.string()),
        ("n", pa.int64()),
        ("mistakes", pa.int64()),
        ("error", pa.float64()),
        ("window_n", pa.int64()),
        ("window_error", pa.float64()),
        ("faded_error", pa.float64()),
        ("updates", pa.int64()),
        ("hinge", pa.float64()),
        ("baseline_error", pa.float64()),
        ("kappa", pa.float64()),
        ("f1", pa.map_(pa.string(), pa.float64())),
        ("precision", pa.map_(pa.string(), pa.float64())),
        ("recall", pa.map_(pa.string(), pa.float64())),
        ("log_loss", pa.float64()),
        ("brier", pa.float64()),
        ("view_difference", pa.float64()),
        ("faded_view_difference", pa.float64()),
        ("drift", pa.bool_()),
        ("batch_n", pa.int64()),
        ("batch_error", pa.float64()),
        ("last_topic", pa.string()),
        ("last_partition", pa.int32()),
        ("last_offset", pa.int64()),
    ]
)
PREDICTIONS = pa.schema(
    [
        ("key", pa.string()),
        ("id", pa.string()),
        ("learner", pa.string()),
        ("score", pa.float64()),
        ("predicted", pa.string()),
        ("probability", pa.float64()),
        ("label", pa.string()),
        ("correct", pa.bool_()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
REJECTED = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)
EXPIRED = pa.schema(
    [
        ("key", pa.string()),
        ("id", pa.string()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
    ]
)
DRIFTS = pa.schema(
    [
        ("key", pa.string()),
        ("learner", pa.string()),
        ("action", pa.string()),
        ("examples", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
FORGOTTEN = pa.schema(
    [
        ("key", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("asked_at", pa.timestamp("ms", tz="UTC")),
    ]
)
_OFFSETS = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64())])
BATCHES = pa.schema(
    [
        ("records", pa.int64()),
        *((status, pa.int64()) for status in STATUSES),
        ("keys_evicted", pa.int64()),
        ("features_evicted", pa.int64()),
        ("reasons", pa.map_(pa.string(), pa.int64())),
        ("offsets", pa.list_(_OFFSETS)),
        ("empty_offsets", pa.int64()),
    ]
)
#: Tables whose rows come from the buckets.
TABLES = {
    "models": MODELS,
    "metrics": METRICS,
    "predictions": PREDICTIONS,
    "rejected": REJECTED,
    "expired": EXPIRED,
    "drifts": DRIFTS,
    "forgotten": FORGOTTEN,
}

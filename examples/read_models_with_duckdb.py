"""Read what a job learned with DuckDB alone: ``python examples/read_models_with_duckdb.py OUT [KEY]``.

OUT is a job's output folder. Neither palearn nor Spark is needed: the tables are plain Parquet, a folder a batch.
Weights are those of KEY, by default of the key that has learned most. ``palearn models OUT --sql`` prints more queries.
"""

import sys

import duckdb

out, *chosen = sys.argv[1:]
models = duckdb.read_parquet(f"{out}/models/batch_id=*/*.parquet", hive_partitioning=True)
metrics = duckdb.read_parquet(f"{out}/metrics/batch_id=*/*.parquet", hive_partitioning=True)

print("Each learner over all keys, up to the last batch; these rows have no key.")
totals = """
    SELECT learner, n, round(100 * error, 2) AS "error in %"
    FROM metrics WHERE key IS NULL
    QUALIFY row_number() OVER (PARTITION BY learner ORDER BY batch_id DESC) = 1
    ORDER BY error, learner
"""
print(duckdb.sql(totals))

print("The newest model of each key and learner.")
newest = duckdb.sql("""
    SELECT * FROM models
    QUALIFY row_number() OVER (PARTITION BY key, learner ORDER BY batch_id DESC) = 1
    ORDER BY n_learned DESC, key, learner
""")
print(duckdb.sql("SELECT key, learner, n_learned, len(features) AS features, batch_id FROM newest LIMIT 10"))

key = chosen[0] if chosen else newest.limit(1).fetchall()[0][0]
print(f"The strongest weights of {key!r}.")
# Weights stand label by label. A binary model has one block of them, of its second label.
strongest = """
    SELECT learner,
      labels[len(labels) - len(weights) // len(features) + i // len(features) + 1] AS label,
      features[i % len(features) + 1] AS feature,
      round(weight, 4) AS weight
    FROM (
      SELECT *, generate_subscripts(weights, 1) - 1 AS i, unnest(weights) AS weight FROM newest WHERE key = $key
    )
    ORDER BY abs(weight) DESC, learner, label, feature
    LIMIT 10
"""
print(duckdb.sql(strongest, params={"key": key}))

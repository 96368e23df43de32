"""One bucket of keys: records and state in, state and result rows out; no Spark, no clock, no randomness."""

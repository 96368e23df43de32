"""A kafka-python consumer with River's PAClassifier for each key, in memory only: lost when the process ends.

``python river_loop.py SERVERS TOPIC``: takes what the topic holds, then prints its records and when the first and the
last of them were done.
"""

import json
import sys
import time
from collections import defaultdict

from kafka import KafkaConsumer
from river.linear_model import PAClassifier

IDLE_MS = 10_000  # without a record, after which the topic is taken to be at its end


def main(servers: str, topic: str) -> None:
    """Run one of the processes of the consumer group."""
    models: dict[bytes, PAClassifier] = defaultdict(PAClassifier)
    consumer = KafkaConsumer(
        topic, bootstrap_servers=servers, group_id="river", auto_offset_reset="earliest", consumer_timeout_ms=IDLE_MS
    )
    records = mistakes = 0
    first = last = 0.0
    for message in consumer:
        value = json.loads(message.value)
        model, y = models[message.key], value["label"] > 0
        mistakes += model.predict_one(value["features"]) != y
        model.learn_one(value["features"], y)  # type: ignore[no-untyped-call]
        last = time.time()
        first = first or last
        records += 1
    print(json.dumps({"records": records, "mistakes": mistakes, "first": first, "last": last}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Quix Streams: PA-I in a dict for each key, state in RocksDB with a changelog topic, exactly once.

``python quix.py SERVERS TOPIC FOLDER``: takes what the topic holds, then prints its records and when the first and the
last of them were done.
"""

import json
import sys
import time
from typing import Any

from quixstreams import Application, State

C = 1.0
IDLE = 10.0  # seconds without a record after which the topic is taken to be at its end

counted: dict[str, float] = {"records": 0, "mistakes": 0, "first": 0.0, "last": 0.0}


def learn(value: dict[str, Any], state: State) -> dict[str, Any]:
    """Score, learn and count one record; returns the key's figures, as a rolling error would need them."""
    weights = state.get("weights", default={})
    seen, mistakes = state.get("seen", default=0), state.get("mistakes", default=0)
    features, y = value["features"], 1 if value["label"] > 0 else -1
    margin = y * (sum(weights.get(name, 0.0) * x for name, x in features.items()) + weights.get("(bias)", 0.0))
    mistakes += margin <= 0
    if margin < 1:
        tau = min(C, (1 - margin) / (1 + sum(x * x for x in features.values())))
        for name, x in features.items():
            weights[name] = weights.get(name, 0.0) + tau * y * x
        weights["(bias)"] = weights.get("(bias)", 0.0) + tau * y
        state.set("weights", weights)
    state.set("seen", seen + 1)
    state.set("mistakes", mistakes)
    now = time.time()
    counted["first"] = counted["first"] or now
    counted.update(records=counted["records"] + 1, mistakes=counted["mistakes"] + (margin <= 0), last=now)
    return {"n": seen + 1, "mistakes": mistakes}


def main(servers: str, topic: str, folder: str) -> None:
    """Run one of the processes of the consumer group."""
    application = Application(
        broker_address=servers, consumer_group="quix", auto_offset_reset="earliest", state_dir=folder,
        processing_guarantee="exactly-once", loglevel="ERROR",
    )  # fmt: skip
    frame = application.dataframe(application.topic(topic, value_deserializer="json", key_deserializer="str"))
    frame.apply(learn, stateful=True)
    application.run(timeout=IDLE)
    print(json.dumps(counted))


if __name__ == "__main__":
    main(*sys.argv[1:])

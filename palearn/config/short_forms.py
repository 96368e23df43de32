"""Short forms of a configuration, written out: a trigger's interval as one word, brokers named in the environment."""

import os
from typing import Any

#: The environment variable that names brokers where a configuration does not.
BOOTSTRAP = "PALEARN_BOOTSTRAP_SERVERS"


def write_out(tree: dict[str, Any]) -> None:
    """Put the long forms in place of the short ones, in the tree itself; faults stay for who checks it."""
    if (trigger := tree.get("trigger")) != "available_now" and isinstance(trigger, str):
        tree["trigger"] = {"processing_time": trigger}
    source = tree.get("source")
    kafka = source.get("kafka") if isinstance(source, dict) else None
    if isinstance(kafka, dict) and "bootstrap_servers" not in kafka and os.environ.get(BOOTSTRAP):
        kafka["bootstrap_servers"] = os.environ[BOOTSTRAP]

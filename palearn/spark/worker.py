"""What a Python worker of Spark does once in its life.

PySpark's workers run a full garbage collection after every task, and one that has imported numba, pandas and palearn
holds 190,000 objects: 60 ms a task, of which a small batch has four.
"""

import gc
from functools import cache


@cache
def freeze_imports() -> None:
    """Keep the collector from what this process has imported and compiled; only the first call of a process does.

    To be called after the first work is done: by then the kernels are loaded too.
    """
    gc.collect()
    gc.freeze()

"""palearn: online linear classifiers, one model per key, learned from Kafka inside a Spark job."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from palearn.errors import PalearnError

if TYPE_CHECKING:
    from palearn.models.single import Model, from_bytes, learners, make
    from palearn.serving import load

__version__ = "0.1.0"
__all__ = ["Model", "PalearnError", "__version__", "from_bytes", "learners", "load", "make"]

#: Where names are that take long to import: a signal may come to a process that is only starting.
_LATER = {name: "palearn.models.single" for name in ("Model", "from_bytes", "learners", "make")}
_LATER["load"] = "palearn.serving"


def __getattr__(name: str) -> Any:
    """Return a name of another module, which is imported where it is used."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

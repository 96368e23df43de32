"""palearn: online linear classifiers, one model per key, learned from Kafka inside a Spark job."""

from typing import TYPE_CHECKING, Any

from palearn.errors import PalearnError
from palearn.models.single import Model, from_bytes, learners, make

if TYPE_CHECKING:
    from palearn.serving import load

__version__ = "0.1.0"
__all__ = ["Model", "PalearnError", "__version__", "from_bytes", "learners", "load", "make"]


def __getattr__(name: str) -> Any:
    """Return ``load``: what reads tables is imported where it is used."""
    if name == "load":
        from palearn.serving import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

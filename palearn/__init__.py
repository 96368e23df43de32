"""palearn: online linear classifiers, one model per key, learned from Kafka inside a Spark job."""

from typing import TYPE_CHECKING, Any

from palearn.errors import PalearnError

if TYPE_CHECKING:
    from palearn.model import Model, from_bytes, learners, make

__version__ = "0.1.0"
__all__ = ["Model", "PalearnError", "__version__", "from_bytes", "learners", "make"]


def __getattr__(name: str) -> Any:
    """Import the model when it is first asked for: the commands do without it, and it takes long."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from palearn import model

    return getattr(model, name)

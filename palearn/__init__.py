"""palearn: online linear classifiers, one model per key, learned from Kafka inside a Spark job."""

from palearn.errors import PalearnError
from palearn.models.single import Model, from_bytes, learners, make

__version__ = "0.1.0"
__all__ = ["Model", "PalearnError", "__version__", "from_bytes", "learners", "make"]

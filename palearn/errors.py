"""Everything palearn raises on purpose.

Each error is a :class:`PalearnError` and also the built-in exception a caller would already catch.
The command line prints these as one line; any other exception keeps its traceback.
"""


def shown(text: str) -> str:
    """Return a name, or what holds one, as a terminal may have it: what does not print, as Python writes it."""
    return text if text.isprintable() else "".join(x if x.isprintable() else repr(x)[1:-1] for x in text)


class PalearnError(Exception):
    """Root of all errors that palearn raises on purpose."""


class LearnerError(PalearnError, ValueError):
    """A learner's name, option or hyper-parameter is outside its domain."""


class ConfigError(PalearnError, ValueError):
    """The configuration is wrong, or does not belong to the checkpoint or output it is used with."""


class RecordError(PalearnError, ValueError):
    """A record cannot be used; carries the reason code that the ``rejected`` table shows.

    Parameters
    ----------
    reason
        One of :data:`palearn.records.REASONS`.
    detail
        A sentence: what, where, and what to do.
    label
        The label as text, where it is what cannot be used.
    """

    def __init__(self, reason: str, detail: str, *, label: str | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.label = label


class LabelError(PalearnError, ValueError):
    """The labels of a file are not those of the task: not two, or none of them is the positive one."""


class NoModelError(RecordError, LookupError):
    """A record's key has no model."""

    def __init__(self, detail: str) -> None:
        super().__init__("no_model", detail)


class StateFormatError(PalearnError, ValueError):
    """Bytes are not a state blob, are damaged, or were written by a newer version."""


class NewerFormatError(StateFormatError):
    """A state blob was written by a newer version."""


class FileFormatError(PalearnError, ValueError):
    """A file cannot be read as records: unknown suffix, missing column, unreadable container."""


class BrokerError(PalearnError, RuntimeError):
    """The Kafka broker cannot be started, stopped or reached."""


class StoreError(PalearnError, RuntimeError):
    """The local object store cannot be started."""


class StreamError(PalearnError, RuntimeError):
    """The Spark job cannot start or go on without losing or repeating something."""


class MissingExtraError(PalearnError, ImportError):
    """A package that this needs is not installed; it comes with an extra of palearn."""


#: Packages that only an extra brings -> the extra.
EXTRAS = {
    "pyspark": "spark",
    "py4j": "spark",
    "kafka": "kafka",
    "jgo": "kafka",
    "deltalake": "delta",
    "matplotlib": "plots",
    "PIL": "plots",
    "prometheus_client": "prometheus",
    "starlette": "serve",
    "uvicorn": "serve",
    "swagger_ui_bundle": "serve",
    "sklearn": "sklearn",
    "river": "river",
    "fastavro": "avro",
    "google": "protobuf",
}


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return the message for a module that is missing, if an extra brings it."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return MissingExtraError(
        f"this needs {package}, which is not installed: pip install 'palearn[{EXTRAS[package]}]'", name=error.name
    )

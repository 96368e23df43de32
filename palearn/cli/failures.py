"""What every command has: ``--debug``, ``--log-format``, and failures that are told in one sentence."""

import datetime
import functools
import inspect
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console

from palearn.errors import PalearnError, missing_extra, shown

_OURS = "palearn"


@dataclass
class _Chosen:
    """What stands on the command line for all of the process; None: the configuration's ``logging``."""

    debug: bool = False
    log_format: str | None = None


CHOSEN = _Chosen()


Debug = Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")]
LogFormat = Annotated[
    Literal["text", "json"] | None,
    typer.Option("--log-format", help="How lines of the log are written; default: logging.format, or text."),
]


class App(typer.Typer):
    """A group of commands, each with the options that all have."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Add a command; the function stays as it is."""
        register = super().command(name, **options)

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            register(_with_common(function))
            return function

        return add


def _with_common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command's function with the options that all have, which it does not see itself."""

    @functools.wraps(function)
    def command(*arguments: Any, debug: bool, log_format: str | None, **options: Any) -> Any:
        CHOSEN.debug, CHOSEN.log_format = debug, log_format
        return function(*arguments, **options)

    own, only = inspect.signature(function), inspect.Parameter.KEYWORD_ONLY
    common = [
        inspect.Parameter("debug", only, default=False, annotation=Debug),
        inspect.Parameter("log_format", only, default=None, annotation=LogFormat),
    ]
    command.__signature__ = own.replace(parameters=[*own.parameters.values(), *common])  # type: ignore[attr-defined]
    command.__annotations__ = {**function.__annotations__, "debug": Debug, "log_format": LogFormat}
    return command


def guarded(command: Callable[[], object]) -> None:
    """Run a command; a failure is one sentence on standard error, and exit status 1."""
    try:
        try:
            command()
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from None
    except Exception as error:
        _tell(error)
        sys.exit(1)


def _tell(error: Exception) -> None:
    from palearn.spark import error_messages

    told = str(error) if isinstance(error, PalearnError) else error_messages.explain(error)
    if not isinstance(error, PalearnError) and not error_messages.is_foreign(error):
        told = f"unexpected fault, please report it: {told}"
    if CHOSEN.log_format == "json":
        fields: dict[str, Any] = {"time": _now(), "level": "error", "event": "failed", "message": told}
        if CHOSEN.debug:
            fields["trace"] = error_messages.trace_of(error)
        sys.stderr.write(msgspec.json.encode(fields).decode() + "\n")
        return
    if CHOSEN.debug:
        sys.stderr.write(error_messages.trace_of(error) + "\n")
    told = "\n".join(map(shown, told.split("\n")))
    Console(stderr=True).print(f"palearn: {told}", markup=False, highlight=False, soft_wrap=True)


# -- the log ---------------------------------------------------------------------------------------------------


def log_to_stderr(format: str = "text", level: str = "info") -> None:
    """Let palearn tell what it does, on standard error; others only what is wrong.

    Parameters
    ----------
    format, level
        Of the configuration's ``logging``; ``--log-format`` wins.
    """
    CHOSEN.log_format = CHOSEN.log_format or format
    handler = logging.StreamHandler()
    handler.set_name(_OURS)
    handler.setFormatter(
        JsonLines() if CHOSEN.log_format == "json" else logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
    )
    root = logging.getLogger()
    for earlier in [each for each in root.handlers if each.get_name() == _OURS]:
        root.removeHandler(earlier)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])  # whoever has handlers already keeps them
    for each in root.handlers:
        each.addFilter(_is_not_of_py4j)
    logging.getLogger("palearn").setLevel(level.upper())


class JsonLines(logging.Formatter):
    """A line of the log as one JSON object: time (UTC), level, event, message, and what the event has beside it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: dict[str, Any] = {
            "time": _now(record.created),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
            "message": record.getMessage(),
        }
        for name in ("batch", "figures"):
            if (value := getattr(record, name, None)) is not None:
                fields[name] = value
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


def _now(seconds: float | None = None) -> str:
    utc = datetime.UTC
    time = datetime.datetime.now(utc) if seconds is None else datetime.datetime.fromtimestamp(seconds, utc)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_not_of_py4j(entry: logging.LogRecord) -> bool:
    """Leave out what py4j logs, by its own loggers and by the root: a traceback at every Ctrl-C.

    What Java answers is told by whoever asked.
    """
    return "py4j" not in Path(entry.pathname).parts

"""The command line: ``palearn COMMAND``. Thin: each command reads its options and calls one function."""

import sys
from collections.abc import Callable

import typer
from rich.console import Console

from palearn.cli.evaluate import evaluate, search
from palearn.cli.generate import generate
from palearn.cli.init import init
from palearn.cli.jobs import replay, stream
from palearn.cli.models import models, predict
from palearn.cli.report import report
from palearn.cli.reproduce import reproduce
from palearn.cli.serve import serve
from palearn.cli.shared import app
from palearn.errors import PalearnError, missing_extra, shown

__all__ = [
    "app",
    "evaluate",
    "generate",
    "init",
    "main",
    "models",
    "predict",
    "replay",
    "replay_job",
    "report",
    "reproduce",
    "search",
    "serve",
    "stream",
    "stream_job",
]


def main() -> None:
    """Run a command; an error of palearn's is one line and exit status 1."""
    _guarded(app)


def stream_job() -> None:
    """Entry of ``jobs/stream.py``."""
    _guarded(lambda: typer.run(stream))


def replay_job() -> None:
    """Entry of ``jobs/replay.py``."""
    _guarded(lambda: typer.run(replay))


def _guarded(command: Callable[[], object]) -> None:
    try:
        try:
            command()
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from None
    except PalearnError as error:
        told = "\n".join(map(shown, str(error).split("\n")))
        Console(stderr=True).print(f"palearn: {told}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)

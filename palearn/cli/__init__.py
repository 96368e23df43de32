"""The command line: ``palearn COMMAND``. Thin: each command reads its options and calls one function."""

from collections.abc import Callable

from palearn.cli.evaluate import evaluate, search
from palearn.cli.failures import App, guarded
from palearn.cli.generate import generate
from palearn.cli.init import init
from palearn.cli.jobs import replay, stream
from palearn.cli.models import models, predict
from palearn.cli.report import report
from palearn.cli.reproduce import reproduce
from palearn.cli.serve import serve
from palearn.cli.shared import app

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
    """Run a command; a failure is one sentence and exit status 1."""
    guarded(app)


def stream_job() -> None:
    """Entry of ``jobs/stream.py``."""
    _run_alone(stream)


def replay_job() -> None:
    """Entry of ``jobs/replay.py``."""
    _run_alone(replay)


def _run_alone(command: Callable[..., object]) -> None:
    """Run a command that needs not be named."""
    alone = App(add_completion=False, pretty_exceptions_enable=False)
    alone.command()(command)
    guarded(alone)

"""What the commands share: the application, options, and how answers are shown."""

import os
import platform
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from palearn.cli.failures import App
from palearn.cli.panels import PanelGroup
from palearn.errors import ConfigError, FileFormatError
from palearn.report import terminal_table
from palearn.report.terminal_table import Column, Sheet

app = App(
    help="Online linear classifiers, one model per key, learned from Kafka inside a Spark job.",
    pretty_exceptions_enable=False,
    add_completion=False,
    cls=PanelGroup,
)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the versions of palearn, Python and Spark.", is_eager=True,
            callback=lambda given: _print_versions() if given else None,
        ),
    ] = False,
) -> None:  # fmt: skip
    """Take the options before a command; without a command show help, which is no error."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _print_versions() -> NoReturn:
    typer.echo(versions())
    raise typer.Exit


def versions() -> str:
    """Return the versions that a question about palearn should name."""
    from importlib import metadata

    from palearn import __version__

    try:
        spark = f"pyspark {metadata.version('pyspark')}"
    except metadata.PackageNotFoundError:
        spark = "no pyspark installed"
    return f"palearn {__version__}, Python {platform.python_version()}, {spark}"


broker_app = App(
    help="A real single-node Kafka on this machine, for trying things.", no_args_is_help=True, cls=PanelGroup
)
app.add_typer(broker_app, name="broker")
store_app = App(help="An object store (S3) on this machine, for trying things.", no_args_is_help=True, cls=PanelGroup)
app.add_typer(store_app, name="store")
state_app = App(help="The state of a stopped job.", no_args_is_help=True, cls=PanelGroup)
app.add_typer(state_app, name="state")
#: Names of keys and features are text, whatever brackets are in them.
console = Console(markup=False, width=terminal_table.width())

SHIPPED = "a data set that ships with palearn: a9a or internet_ads"
Config = Annotated[Path, typer.Option("--config", help="Configuration, YAML.", exists=True, dir_okay=False)]
Overrides = Annotated[list[str], typer.Option("--set", help="Override a value: learners.0.C=0.5")]
Master = Annotated[str | None, typer.Option(help="Spark master, e.g. local[2]; default: spark-submit's, or local[*].")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Port = Annotated[int, typer.Option(help="Clients' port; the controller listens on the next one.", min=1, max=65534)]
Data = Annotated[Path | None, typer.Option(help="Folder of the broker's log and topics.")]


def bootstrap_of(given: str | None = None) -> str:
    """Return a broker's address: the one given, PALEARN_BOOTSTRAP_SERVERS of the environment, or this machine's."""
    from palearn.config.short_forms import BOOTSTRAP

    return given or os.environ.get(BOOTSTRAP) or "127.0.0.1:9092"


def print_rows(rows: list[dict[str, Any]], numbers: Collection[str] = ()) -> None:
    """Print rows as a table; where there is no room for all ``numbers`` and columns of such, for the first ones."""
    if not rows:
        console.print("nothing")
        return
    columns = []
    for place, name in enumerate(rows[0]):
        cells = [row[name] for row in rows]
        number = name in numbers or all(isinstance(cell, int | float) or cell == "-" for cell in cells)
        columns.append(Column(name, list(map(_text, cells)), "number" if number else "text", place if number else 0))
    console.print(Sheet(columns))


def _text(cell: Any) -> str:
    """Return a cell as text: a number with four places, or a small one with three digits."""
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:+.4f}" if cell == 0 or abs(cell) >= 0.001 else f"{cell:+.2e}"


def assignments(given: list[str]) -> dict[str, Any]:
    """Return ``-p NAME=VALUE`` options; a value that is a number is one."""
    out: dict[str, Any] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals:
            usage(f"-p takes NAME=VALUE, got {item!r}")
        out[name] = value_of(f"-p {name}", text)
    return out


def value_of(option: str, text: str) -> Any:
    """Return an option's value, as the configuration would read it."""
    from palearn.config import read_yaml

    try:
        return read_yaml(text, option)
    except ConfigError as error:
        usage(str(error))


def output_folder(path: str) -> str:
    """Return the path of an output folder that is there; of one in a store, once its bucket answers."""
    from palearn.tables import object_stores

    if "://" not in path and not Path(path).is_dir():
        usage(f"there is no folder {path!r}")
    if object_stores.is_store(object_stores.known_uri(path)):
        object_stores.require_reachable(object_stores.known_uri(path))
    return path


def usage(message: str) -> NoReturn:
    """End with status 2."""
    raise typer.BadParameter(message)


def progress(unit: str, *, passing: bool = False) -> Progress:
    """Return a progress bar on standard error, so that standard output can be piped.

    One that is ``passing`` leaves nothing behind, and is for terminals only.
    """
    count = TaskProgressColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
    stderr = Console(stderr=True)
    return Progress(*columns, console=stderr, transient=passing, disable=passing and not stderr.is_terminal)


def save(path: Path, text: str) -> None:
    """Write a text file.

    Raises
    ------
    FileFormatError
        It cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileFormatError(f"{path} cannot be written: {error.strerror}") from None


def print_json(content: Any) -> None:
    """Print an answer as JSON."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(content, enc_hook=str)).decode() + "\n")

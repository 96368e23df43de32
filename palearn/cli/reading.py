"""How the commands read files: their options, and what they say of a file's columns."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from palearn.cli.shared import SHIPPED, usage
from palearn.errors import FileFormatError, shown
from palearn.files.options import ReadOptions

FileFormat = Annotated[
    str | None, typer.Option("--format", help="libsvm, csv, jsonl, vw, parquet or arrow; default: by suffix.")
]
LabelColumn = Annotated[
    str | None, typer.Option("--label", help="Label column of CSV, Parquet and Arrow; default: label.")
]
Columns = Annotated[
    list[str],
    typer.Option(
        "--column", help="What a column holds, NAME=number, text, boolean, bag, id, weight, time or ignore; VW: tag=id."
    ),
]
Names = Annotated[Path | None, typer.Option("--names", help="Feature names for LIBSVM: a line each, in index order.")]

Key = Annotated[str | None, typer.Option(help="The field that is the key: one model for each of its values.")]

KeyFeature = Annotated[bool, typer.Option("--key-feature", help="The key's column is a feature too.")]
Delimiter = Annotated[
    str | None,
    typer.Option(help="CSV: the character between cells, tab for a tab; default: what the first line shows."),
]
Header = Annotated[str | None, typer.Option(help="CSV without a header line: the columns' names, with commas.")]
Encoding = Annotated[str | None, typer.Option(help="Of text: cp1252, utf-16, …; default: utf-8.")]
Decimal = Annotated[str | None, typer.Option(help="CSV: what stands before the fraction of numbers, . or ,")]

#: So many columns of a file are shown.
MOST_COLUMNS = 30


def inputs(files: list[str], reading: ReadOptions) -> tuple[list[Path], ReadOptions]:
    """Return the files and how they are read, with the shipped data sets' names resolved to theirs."""
    from palearn import datasets

    paths = []
    for file in files:
        if file in datasets.DATASETS and not Path(file).exists():
            paths.append(datasets.path(file))
            reading = reading.but(names=reading.names or datasets.names(file))
        else:
            paths.append(_existing(file))
    return paths, reading


def reads_files(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of reading files in place of its parameter ``reading``, a :class:`ReadOptions`."""
    own = inspect.signature(command, eval_str=True).parameters
    taken = inspect.signature(_reading, eval_str=True).parameters

    @functools.wraps(command)
    def run(**given: Any) -> None:
        told = {name: given.pop(name) for name in taken}
        command(**given, reading=_reading(**told))

    mine = [x for name in own for x in (taken.values() if name == "reading" else (own[name],))]
    named = [x.replace(kind=inspect.Parameter.KEYWORD_ONLY) for x in mine]
    run.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    run.__annotations__ = {x.name: x.annotation for x in named}
    return run


def _reading(
    key: Key = None,
    format: FileFormat = None,
    label: LabelColumn = None,
    names: Names = None,
    column: Columns = [],  # noqa: B006
    key_feature: KeyFeature = False,
    delimiter: Delimiter = None,
    header: Header = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
) -> ReadOptions:
    return ReadOptions(
        format=format,
        key=key,
        key_feature=key_feature,
        label=label,
        names=None if names is None else _read_names(names),
        columns=_columns_of(column),
        delimiter="\t" if delimiter in ("\\t", "tab") else delimiter,
        header=None if header is None else header.split(","),
        encoding=encoding,
        decimal=decimal,
    )


def _existing(file: str) -> Path:
    from palearn.files.text_lines import STDIN

    path = Path(file)
    if path == STDIN:
        return path
    if path.is_dir():
        raise FileFormatError(f"{file} is a folder; give its files")
    if not path.exists():
        raise FileFormatError(f"there is no file {file}, and it is not {SHIPPED}")
    return path


def _read_names(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise FileFormatError(message) from None
    return [line.rpartition("\t")[2] for line in lines]


def _columns_of(given: list[str]) -> dict[str, str]:
    """Return ``--column NAME=KIND`` options; a name may hold ``=``."""
    pairs = [item.rpartition("=") for item in given]
    if wrong := next((item for item, (name, _, kind) in zip(given, pairs, strict=True) if not name or not kind), None):
        usage(f"--column takes NAME=KIND, such as age=text, got {wrong!r}")
    return {name: kind for name, _, kind in pairs}


def column_kinds(path: Path, reading: ReadOptions, *, quiet: bool) -> dict[str, str]:
    """Return what a file's columns are taken for; say so on standard error, and what is worth a warning."""
    from palearn import files

    kinds, notes = files.look(path, reading)
    if kinds and not quiet:
        told = ", ".join(f"{name} {kind}" if name != kind else name for name, kind in [*kinds.items()][:MOST_COLUMNS])
        more = f", and {len(kinds) - MOST_COLUMNS:,} more" if len(kinds) > MOST_COLUMNS else ""
        typer.echo(shown(f"{path}: {told:.4000}{more} (change one with --column NAME=text)"), err=True)
    for note in notes:
        typer.echo(shown(f"{path}: {note}"), err=True)
    return kinds

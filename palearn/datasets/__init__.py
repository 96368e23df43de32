"""Data sets that ship inside the package, each with its licence.

Their attribution, and what was changed, is in the ``README.md`` of this folder.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from palearn.errors import FileFormatError
from palearn.records import Record, parse_libsvm


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What is known of one shipped data set.

    Parameters
    ----------
    file
        The data, LIBSVM text with feature numbers from 1, gzip; in this folder.
    names_file
        The features' names, a line each: number, tab, name; in this folder.
    rows
        Number of examples.
    licence, source, citation
        What the licence asks to be told with the data.
    """

    file: str
    names_file: str
    rows: int
    licence: str
    source: str
    citation: str


DATASETS: dict[str, Dataset] = {
    "a9a": Dataset(
        file="a9a.libsvm.gz",
        names_file="a9a.names.txt",
        rows=32_561,
        licence="CC BY 4.0",
        source="https://doi.org/10.24432/C5XW20",
        citation=(
            "Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository; "
            "binarised by Platt, J. (1998), the LIBSVM data set a9a."
        ),
    ),
    "internet_ads": Dataset(
        file="internet_ads.libsvm.gz",
        names_file="internet_ads.names.txt",
        rows=1_966,
        licence="CC BY 4.0",
        source="https://doi.org/10.24432/C5V011",
        citation=(
            "Kushmerick, N. (1998). Internet Advertisements. UCI Machine Learning Repository; without duplicates "
            "and continuous attributes, by Campos, G. O. et al. (2016)."
        ),
    ),
}


def path(name: str) -> Path:
    """Path of a shipped file of records, for whatever reads LIBSVM files."""
    return Path(__file__).with_name(_dataset(name).file)


def names(name: str) -> list[str]:
    """Feature names such as ``age=quintile1`` or ``alt*click``; the first belongs to feature number 1."""
    text = Path(__file__).with_name(_dataset(name).names_file).read_text(encoding="utf-8")
    return [line.split("\t")[1] for line in text.splitlines()]


def a9a() -> Iterator[Record]:
    """UCI Adult, binarised: the training examples in file order, with named features.

    Returns
    -------
    iterator of Record
        ``label`` is 1 where the person earns more than 50,000 dollars a year, else -1. The
        features are the ones of the example's 123 that are 1.
    """
    return _records("a9a")


def internet_ads() -> Iterator[Record]:
    """UCI Internet Advertisements without duplicates: images of web pages in file order, with named features.

    Returns
    -------
    iterator of Record
        ``label`` is 1 where the image is an advertisement, else -1. The features are the ones of the image's
        1,555 that are 1: ``local`` (the image comes from the page's own server), and terms ``PLACE*TERM`` of five
        places: ``url`` of the image, ``origurl`` of its page, ``ancurl`` that it links to, its ``alt`` text and its
        ``caption``. The file is sorted by class: shuffle it.
    """
    return _records("internet_ads")


def _records(name: str) -> Iterator[Record]:
    feature_names = names(name)
    with gzip.open(path(name), "rt", encoding="ascii") as lines:
        for line in lines:
            label, *items = line.split()
            features = parse_libsvm(items)
            yield Record(
                label=int(label),
                features={feature_names[int(number) - 1]: value for number, value in features.items()},
            )


def _dataset(name: str) -> Dataset:
    if name not in DATASETS:
        msg = f"data set {name!r} is not shipped with palearn; there are: {', '.join(sorted(DATASETS))}"
        raise FileFormatError(msg)
    return DATASETS[name]

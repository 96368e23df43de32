"""The data sets of the papers, read from a folder that the reader gives.

Nothing is fetched. The folder's layout, a sub-folder a data set, in the formats in which the sets are handed on:

=============================  ====================================================================================
``a9a/a9a.gz``, ``a9a.t.gz``   LIBSVM text
``svmguide1/svmguide1``        LIBSVM text, labels 1 and 0; ``svmguide1.t`` the test part
``usps/zip.train.gz``          a digit and 256 grey values a line; ``zip.test.gz`` the test part
``mnist/t10k-*-ubyte.gz``      IDX; the official test half
``crx/credit.a.arff``          UCI Credit Approval
``bupa/bupa.data``             UCI Liver Disorders, CSV with a header
``internet_ads/``              ``internet_ads_dedup.svm.gz``, ``feature_names.txt`` (number, tab, view*name)
``webkb_course/``              ``page.svm.gz``, ``link.svm.gz``, the same rows in the same order
``20news/``                    ``20news.train.svm.xz``, ``20news.test.svm.xz``, ``groups.txt``
``blitzer_sentiment/``         ``books_train.svmlight.xz`` ..., features from 0
=============================  ====================================================================================
"""

import bz2
import csv
import gzip
import lzma
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from palearn.matrix import Matrix
from palearn.types import FloatArray, IntArray

DOMAINS = ("books", "dvd", "electronics", "kitchen")
_READERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}


class Examples(NamedTuple):
    """A matrix of examples and their class numbers; binary: 1 is the positive class."""

    x: Matrix
    y: IntArray

    def take(self, rows: IntArray) -> "Examples":
        """Return these rows, in this order."""
        return Examples(self.x[rows], self.y[rows])


def content(folder: Path, name: str) -> bytes:
    """Return a file's bytes, decompressed."""
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: the data folder needs {name} for this paper")
    return _READERS.get(path.suffix, bytes)(path.read_bytes())


def libsvm(folder: Path, name: str, features: int, *, zero_based: bool = False) -> tuple[Matrix, FloatArray]:
    text = BytesIO(content(folder, name))
    x, y = load_svmlight_file(text, n_features=features, zero_based=zero_based)
    return sparse.csr_array(x), y


def _both(first: Matrix, second: Matrix) -> Matrix:
    return sparse.csr_array(sparse.vstack([first, second]))


@cache
def a9a(folder: Path) -> tuple[Examples, Examples]:
    """UCI Adult, binarised: training and test part, 123 features."""
    parts = [libsvm(folder, f"a9a/{name}", 123) for name in ("a9a.gz", "a9a.t.gz")]
    train, test = (Examples(x, (y > 0).astype(np.int64)) for x, y in parts)
    return train, test


@cache
def svmguide1(folder: Path) -> tuple[Examples, Examples]:
    """Astroparticles: training and test part, 4 features as they are."""
    parts = [libsvm(folder, f"svmguide1/{name}", 4) for name in ("svmguide1", "svmguide1.t")]
    train, test = (Examples(x, (y > 0).astype(np.int64)) for x, y in parts)
    return train, test


@cache
def usps(folder: Path) -> tuple[Examples, Examples]:
    """Handwritten digits: training and test part, 256 grey values in [-1, 1]."""
    parts = []
    for name in ("zip.train.gz", "zip.test.gz"):
        table = np.loadtxt(BytesIO(content(folder, f"usps/{name}")))
        parts.append(Examples(sparse.csr_array(table[:, 1:]), table[:, 0].astype(np.int64)))
    return parts[0], parts[1]


@cache
def mnist(folder: Path) -> Examples:
    """Handwritten digits: the official test half, 784 grey values in [0, 1]."""
    images = np.frombuffer(content(folder, "mnist/t10k-images-idx3-ubyte.gz"), np.uint8, offset=16)
    labels = np.frombuffer(content(folder, "mnist/t10k-labels-idx1-ubyte.gz"), np.uint8, offset=8)
    return Examples(sparse.csr_array(images.reshape(-1, 784) / 255.0), labels.astype(np.int64))


@cache
def bupa(folder: Path) -> Examples:
    """UCI Liver Disorders: 6 numbers; positive is selector 1."""
    lines = csv.reader(content(folder, "bupa/bupa.data").decode().splitlines()[1:])
    table = np.array([[float(cell) for cell in line] for line in lines])
    return Examples(sparse.csr_array(table[:, :-1]), (table[:, -1] == 1).astype(np.int64))


@cache
def crx(folder: Path) -> Examples:
    """UCI Credit Approval: 6 numbers, 9 nominal attributes a column a value; what is missing is 0."""
    head, _, body = content(folder, "crx/credit.a.arff").decode().partition("@data")
    kinds = [line.split()[2] for line in head.splitlines() if line.startswith("@attribute")]
    cells = np.array([line.strip().split(",") for line in body.split("\n") if "," in line])
    columns = []
    for kind, column in zip(kinds[:-1], cells.T, strict=False):
        known = column != "?"
        if kind == "REAL":
            columns.append(np.where(known, column, "0").astype(np.float64))
        else:
            columns += [(column == value).astype(np.float64) for value in np.unique(column[known])]
    return Examples(sparse.csr_array(np.column_stack(columns)), (cells[:, -1] == "+").astype(np.int64))


@cache
def internet_ads(folder: Path) -> tuple[Examples, Examples]:
    """Images of web pages, advertisements or not: view 1 (image and destination URL), view 2 (base URL, alt text)."""
    names = [line.split("\t")[1] for line in content(folder, "internet_ads/feature_names.txt").decode().splitlines()]
    x, y = libsvm(folder, "internet_ads/internet_ads_dedup.svm.gz", len(names))
    view = np.array([name.split("*")[0] for name in names])
    label = (y > 0).astype(np.int64)
    first, second = (np.flatnonzero(np.isin(view, own)) for own in (("url", "ancurl"), ("origurl", "alt")))
    return Examples(x[:, first], label), Examples(x[:, second], label)


@cache
def webkb(folder: Path) -> tuple[Examples, Examples]:
    """Pages of four universities, of a course or not: the page's terms, the terms of links to it."""
    (page, y), (link, _) = (
        libsvm(folder, f"webkb_course/{name}.svm.gz", width) for name, width in (("page", 3000), ("link", 484))
    )
    label = (y > 0).astype(np.int64)
    return Examples(page, label), Examples(link, label)


@cache
def news(folder: Path) -> Examples:
    """20 Newsgroups, both parts of the split by date; 1 for a term that is there."""
    features = len(content(folder, "20news/vocab.txt.gz").split())
    (x, y), (x_test, y_test) = (libsvm(folder, f"20news/20news.{part}.svm.xz", features) for part in ("train", "test"))
    both = _both(x, x_test)
    both.data[:] = 1.0
    return Examples(both, np.concatenate([y, y_test]).astype(np.int64) - 1)


@cache
def sentiment(folder: Path, domain: str) -> Examples:
    """2,000 product reviews of one domain, positive or negative; 1 for a term that is there."""
    x, y = libsvm(folder, f"blitzer_sentiment/{domain}_train.svmlight.xz", 5000, zero_based=True)
    x.data[:] = 1.0
    return Examples(x, (y > 0).astype(np.int64))

"""The data sets of the papers: those that ship with palearn, and those that the reader has in a folder.

Nothing is fetched. :data:`SOURCES` says which files a data set is, where it is to be had, and where the files go in
the folder. Labels and features become numbers here; nothing is scaled.
"""

import bz2
import csv
import gzip
import lzma
import zlib
from collections.abc import Callable
from functools import cache, wraps
from io import BytesIO
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import sparse

from palearn import datasets
from palearn.errors import FileFormatError
from palearn.evaluate import libsvm_blocks, passes
from palearn.models.matrix import Matrix
from palearn.models.state import Settings
from palearn.models.vectorize import Vocabulary
from palearn.types import FloatArray, IntArray

_T = TypeVar("_T")
DOMAINS = ("books", "dvd", "electronics", "kitchen")
_READERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}
#: No row of these data sets has more features.
_MOST_FEATURES = 100_000


class Source(NamedTuple):
    """What is to be got for a data set.

    Parameters
    ----------
    title
        Its name.
    files
        Where the reader's folder must have them.
    url
        Where the data are described and to be had.
    form
        What the files hold, where the source has them in another form.
    """

    title: str
    files: tuple[str, ...]
    url: str
    form: str


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
SOURCES: dict[str, Source] = {
    "a9a-test": Source("a9a's test part", ("a9a/a9a.t.gz",), _LIBSVM, "LIBSVM text, gzip"),
    "svmguide1": Source(
        "svmguide1", ("svmguide1/svmguide1", "svmguide1/svmguide1.t"), _LIBSVM, "LIBSVM text, labels 1 and 0"
    ),
    "usps": Source(
        "USPS",
        ("usps/zip.train.gz", "usps/zip.test.gz"),
        "https://hastie.su.domains/ElemStatLearn/data.html",
        "a digit and 256 grey values a line, gzip, as they are there",
    ),
    "mnist": Source(
        "MNIST's test part",
        ("mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"),
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "IDX, gzip, as they are there",
    ),
    "crx": Source(
        "UCI Credit Approval",
        ("crx/credit.a.arff",),
        "https://github.com/renatopp/arff-datasets",
        "ARFF, as it is in the folder classification",
    ),
    "bupa": Source(
        "UCI Liver Disorders", ("bupa/bupa.data",), "https://doi.org/10.24432/C54G67", "CSV, with or without a header"
    ),
    "webkb": Source(
        "WebKB's course pages",
        ("webkb_course/page.svm.gz", "webkb_course/link.svm.gz"),
        "http://www.cs.cmu.edu/afs/cs/project/theo-51/www/co-training/data/",
        "term counts as LIBSVM text, gzip, made of the pages and of the links to them, the same rows in both",
    ),
    "20news": Source(
        "20 Newsgroups",
        ("20news/20news.train.svm.xz", "20news/20news.test.svm.xz"),
        "http://qwone.com/~jason/20Newsgroups/",
        "term counts as LIBSVM text, xz, made of the split by date, labels 1 to 20",
    ),
    "sentiment": Source(
        "Multi-Domain Sentiment",
        tuple(f"blitzer_sentiment/{domain}_train.svmlight.xz" for domain in DOMAINS),
        "https://github.com/GRAAL-Research/domain_adversarial_neural_network",
        "the four files NAME_train.svmlight of its folder data, xz",
    ),
}


class Examples(NamedTuple):
    """A matrix of examples and their class numbers; binary: 1 is the positive class."""

    x: Matrix
    y: IntArray

    def take(self, rows: IntArray) -> "Examples":
        """Return these rows, in this order."""
        return Examples(self.x[rows], self.y[rows])


def missing(folder: Path | None, name: str) -> str | None:
    """Return how to get a data set that the folder (None: there is none) does not have whole, or None."""
    source = SOURCES[name]
    absent = [file for file in source.files if folder is None or not (folder / file).is_file()]
    if not absent:
        return None
    where = "a folder that you give with --data" if folder is None else str(folder)
    return f"get it from {source.url} ({source.form}) as {', '.join(absent)} in {where}"


def _of(name: str) -> Callable[[Callable[[Path], _T]], Callable[[Path], _T]]:
    """Make a reader name the data set whose files it cannot read."""

    def named(read: Callable[[Path], _T]) -> Callable[[Path], _T]:
        @wraps(read)
        def guarded(folder: Path) -> _T:
            try:
                return read(folder)
            except (ValueError, IndexError, OSError, EOFError, lzma.LZMAError, zlib.error) as error:
                source = SOURCES[name]
                raise FileFormatError(
                    f"{source.title} cannot be read from {', '.join(source.files)} in {folder} ({source.form}): {error}"
                ) from error

        return guarded

    return named


def a9a() -> Examples:
    """UCI Adult's training part, which ships with palearn: 32,561 examples of 123 features."""
    return _a9a(())[0]


@_of("a9a-test")
def a9a_parts(folder: Path) -> tuple[Examples, Examples]:
    """UCI Adult: training and test part, 123 features."""
    train, test = _a9a((folder / "a9a/a9a.t.gz",))
    return train, test


@_of("svmguide1")
def svmguide1(folder: Path) -> tuple[Examples, Examples]:
    """Astroparticle data: training and test part, 4 features."""
    train, test = _libsvm(folder / "svmguide1/svmguide1", folder / "svmguide1/svmguide1.t")
    return _binary(train), _binary(test)


@_of("usps")
def usps(folder: Path) -> tuple[Examples, Examples]:
    """Handwritten digits: training and test part, 256 grey values in [-1, 1]."""
    parts = []
    for name in SOURCES["usps"].files:
        table = np.loadtxt(BytesIO(_content(folder / name)))
        parts.append(Examples(sparse.csr_array(table[:, 1:]), table[:, 0].astype(np.int64)))
    return parts[0], parts[1]


@_of("mnist")
def mnist(folder: Path) -> Examples:
    """Handwritten digits: the official test half, 784 grey values in [0, 1]."""
    images, labels = (
        np.frombuffer(_content(folder / name), np.uint8, offset=offset)
        for name, offset in zip(SOURCES["mnist"].files, (16, 8), strict=True)
    )
    return Examples(sparse.csr_array(images.reshape(-1, 784) / 255.0), labels.astype(np.int64))


@_of("bupa")
def bupa(folder: Path) -> Examples:
    """UCI Liver Disorders: 6 numbers; positive is selector 1."""
    lines = _content(folder / "bupa/bupa.data").decode().splitlines()
    table = np.array([line for line in csv.reader(lines) if line and line[0][:1].isdigit()], np.float64)
    return Examples(sparse.csr_array(table[:, :-1]), (table[:, -1] == 1).astype(np.int64))


@_of("crx")
def crx(folder: Path) -> Examples:
    """UCI Credit Approval: 6 numbers, 9 nominal attributes a column a value; what is missing is 0."""
    head, _, body = _content(folder / "crx/credit.a.arff").decode().partition("@data")
    kinds = [line.split()[2] for line in head.splitlines() if line.startswith("@attribute")]
    cells = np.array([line.strip().split(",") for line in body.split("\n") if "," in line])
    made = []
    for kind, column in zip(kinds[:-1], cells.T, strict=False):
        known = column != "?"
        if kind == "REAL":
            made.append(np.where(known, column, "0").astype(np.float64))
        else:
            made += [(column == value).astype(np.float64) for value in np.unique(column[known])]
    return Examples(sparse.csr_array(np.column_stack(made)), (cells[:, -1] == "+").astype(np.int64))


def internet_ads() -> tuple[Examples, Examples]:
    """Images of web pages, advertisements or not: view 1 (image and destination URL), view 2 (base URL, alt text)."""
    (whole,) = _libsvm(datasets.path("internet_ads"))
    view = np.array([name.split("*")[0] for name in datasets.names("internet_ads")])
    x, y = _binary(whole)
    first, second = (np.flatnonzero(np.isin(view, own)) for own in (("url", "ancurl"), ("origurl", "alt")))
    return Examples(x[:, first], y), Examples(x[:, second], y)


@_of("webkb")
def webkb(folder: Path) -> tuple[Examples, Examples]:
    """Pages of four universities, of a course or not: the page's terms, the terms of links to it."""
    (page,), (link,) = (_libsvm(folder / name) for name in SOURCES["webkb"].files)
    return _binary(page), _binary(link)


@cache
@_of("20news")
def news(folder: Path) -> Examples:
    """20 Newsgroups, both parts of the split by date; 1 for a term that is there."""
    (x, y), (x_test, y_test) = _libsvm(*(folder / name for name in SOURCES["20news"].files))
    both = sparse.csr_array(sparse.vstack([x, x_test]))
    both.data[:] = 1.0
    return Examples(both, np.concatenate([y, y_test]).astype(np.int64) - 1)


@_of("sentiment")
def sentiment(folder: Path) -> list[Examples]:
    """2,000 product reviews of each of :data:`DOMAINS`, positive or negative; 1 for a term that is there."""
    reviews = [_binary(part) for part in _libsvm(*(folder / name for name in SOURCES["sentiment"].files), first=0)]
    for examples in reviews:
        examples.x.data[:] = 1.0
    return reviews


def to_unit(examples: Examples, *others: Examples) -> list[Examples]:
    """Return the examples, and others, with each column brought to [0, 1] by the first ones' least and greatest."""
    x = examples.x.toarray()
    low, width = x.min(axis=0), np.maximum(np.ptp(x, axis=0), 1e-12)
    return [Examples(sparse.csr_array((part.x.toarray() - low) / width), part.y) for part in (examples, *others)]


@cache
def _a9a(more: tuple[Path, ...]) -> list[Examples]:
    return [_binary(part) for part in _libsvm(datasets.path("a9a"), *more)]


def _binary(part: tuple[Matrix, FloatArray]) -> Examples:
    x, y = part
    return Examples(x, (y > 0).astype(np.int64))


def _libsvm(*paths: Path, first: int = 1) -> list[tuple[Matrix, FloatArray]]:
    """Return each file's matrix, all as wide as the widest, and its labels; ``first`` is the first feature's number."""
    vocabulary = Vocabulary(bias=False)
    parts = []
    for path in paths:
        blocks = libsvm_blocks.columns(path, vocabulary, Settings("multiclass"), limit=_MOST_FEATURES)
        rows, faults = passes.join(list(blocks))
        if faults or not rows.code.size:
            fault = next(iter(faults.values()), "it is empty")
            raise FileFormatError(f"{path} is no LIBSVM file of labels and numbers: {fault}")
        parts.append((rows.flat, np.array(rows.labels, np.float64)[rows.code]))
    number = np.array([int(name) for name in vocabulary.names]) - first
    width = int(number.max()) + 1
    return [
        (sparse.csr_array((flat.value, number[flat.feature], flat.bounds), shape=(y.size, width)), y)
        for flat, y in parts
    ]


def _content(path: Path) -> bytes:
    return _READERS.get(path.suffix, bytes)(path.read_bytes())

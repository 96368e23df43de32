"""The papers' tables and figures beside ours, on data that ship with palearn or that the reader has in a folder.

:mod:`benchmarks.papers.run` measures, :mod:`benchmarks.papers.pictures` draws, :mod:`benchmarks.papers.page` writes
what it found, which is JSON (:mod:`benchmarks.papers.results`): the page ``docs/reproduction.md`` follows from the
results in ``benchmarks/results``.
"""

from typing import NamedTuple


class Paper(NamedTuple):
    """A paper: who wrote what, and which of its tables and figures are not reproduced, and why."""

    title: str
    left_out: str


PAPERS: dict[str, Paper] = {
    "pam": Paper(
        "Nguyen, Chang and Hui: Distribution-Aware Online Classifiers (PAM), 2011",
        "Figure 4: tweets of six users, which are not to be had.",
    ),
    "spa": Paper(
        "Matsushima, Shimizu, Yoshida, Ninomiya and Nakagawa: Exact Passive-Aggressive Algorithm for Multiclass "
        "Classification Using Support Class (SPA), 2010",
        "The eight text data sets of table 4, and of table 6 the batch learners; table 5 is of running times.",
    ),
    "pa-mean": Paper(
        "Tsai, Tseng, Lee and Pao: Passive and Aggressive Algorithm with Class Mean Information (PAm)",
        "Five of the seven data sets of tables III to VI; table II is of running times; figure 2.",
    ),
    "two-view": Paper(
        "Nguyen, Chang and Hui: Two-View Online Learning (two-view PA), 2012",
        "Product Review, of table 2 and figure 2: reviews of a Chinese forum, which are not to be had.",
    ),
    "arow": Paper(
        "Crammer, Kulesza and Dredze: Adaptive Regularization of Weight Vectors (AROW), 2013",
        "The other data sets of tables 3 to 8, and figure 10, which is of seven of them; figures 1 to 4 show no "
        "measurements.",
    ),
}

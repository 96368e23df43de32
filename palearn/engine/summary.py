"""What happened to records: their statuses, labels and faults, and what is to be said before the figures."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from palearn.errors import RecordError
from palearn.models.keyed import Models
from palearn.models.labels import SETTING, counted, never_occurs
from palearn.models.state import Settings
from palearn.records import label_text
from palearn.tables.schemas import STATUSES
from palearn.types import IntArray

#: So many labels are counted by name; the others are :data:`OTHERS`.
MOST_LABELS = 1000
OTHERS = "(other labels)"
#: So many labelled records without the positive label are enough to say so.
ENOUGH = 1000


class Example(NamedTuple):
    """A rejected record: where it stands, and what is wrong with it; without a topic it is record ``offset``."""

    topic: str
    partition: int
    offset: int
    detail: str

    @property
    def where(self) -> str:
        """Where the record stands, in words."""
        if not self.topic:
            return f"record {self.offset:,}"
        if "/" in self.topic:  # no topic has one: it is a file
            return f"{self.topic}, line {self.offset:,}"
        return f"{self.topic}, partition {self.partition}, offset {self.offset}"


@dataclass
class Summary:
    """Statuses, evictions, forgotten keys, labels, and each learner's examples, mistakes and updates.

    Parameters
    ----------
    labels
        Label -> scored records that have it; ``positives`` of them are of the positive class of a binary task.
    refused
        The same of records that were rejected for their label.
    rejected_labelled, rejected_unread
        Of the rejected records those with a label, and those of which nobody knows.
    examples
        Reason -> the first record that was rejected for it.
    """

    records: int = 0
    statuses: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATUSES, 0))
    keys_evicted: int = 0
    features_evicted: int = 0
    n: int = 0
    mistakes: dict[str, int] = field(default_factory=dict)
    updates: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    forgotten: int = 0
    labels: dict[str, int] = field(default_factory=dict)
    positives: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    rejected_labelled: int = 0
    rejected_unread: int = 0
    examples: dict[str, Example] = field(default_factory=dict)

    def add(self, other: "Summary") -> None:
        """Add another bucket's figures."""
        for name in ("records", "keys_evicted", "features_evicted", "n", "positives", "forgotten"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rejected_labelled += other.rejected_labelled
        self.rejected_unread += other.rejected_unread
        for mine, theirs in (
            (self.statuses, other.statuses),
            (self.mistakes, other.mistakes),
            (self.updates, other.updates),
            (self.reasons, other.reasons),
        ):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
        tally(self.labels, other.labels.items())
        tally(self.refused, other.refused.items())
        for reason, example in other.examples.items():
            self.examples[reason] = min(example, self.examples.get(reason, example))

    def reject(
        self, fault: RecordError, place: tuple[str, int, int], *, labelled: bool | None, records: int = 1
    ) -> None:
        """Count records that are rejected; ``place`` is the first one's, ``labelled`` None: nobody knows."""
        self.statuses["rejected"] += records
        self.reasons[fault.reason] = self.reasons.get(fault.reason, 0) + records
        self.rejected_labelled += records * bool(labelled)
        self.rejected_unread += records * (labelled is None)
        if fault.label is not None:
            tally(self.refused, [(fault.label, records)])
        example = Example(*place, fault.detail)
        self.examples[fault.reason] = min(example, self.examples.get(fault.reason, example))

    @property
    def seen(self) -> dict[str, int]:
        """Every label that came, with the number of its records, the rejected ones too."""
        out = dict(self.labels)
        tally(out, self.refused.items())
        return out


def tally(counts: dict[str, int], found: Iterable[tuple[str, int]]) -> None:
    """Add counts of labels, few of them by name."""
    for label, n in found:
        name = label if label in counts or len(counts) < MOST_LABELS else OTHERS
        counts[name] = counts.get(name, 0) + n


def problems(summary: Summary, settings: Settings, *, ended: bool) -> list[str]:
    """Return what makes the figures of a run not worth looking at, in sentences.

    Parameters
    ----------
    summary
        Of the run, or of one batch of it.
    settings
        The task, and the positive label.
    ended
        Whether the run is over: nothing labelled has come, then nothing was learned.
    """
    return rejection_problems(summary, ended=ended) + positive_problems(summary, settings, ended=ended)


def rejection_problems(summary: Summary, *, ended: bool) -> list[str]:
    """Return the sentence for records of which none was learned, or more than a fifth of the labelled ones rejected."""
    rejected, n = _rejected(summary), summary.n
    if not n and (rejected or (ended and summary.records)):
        return [_nothing(summary)]
    if 5 * rejected > n + rejected:
        share = f"{100 * rejected / (n + rejected):.1f} %"
        return [f"{share} of the labelled records were rejected ({_reasons(summary)}); {_first(summary)}"]
    return []


def positive_problems(summary: Summary, settings: Settings, *, ended: bool) -> list[str]:
    """Return the sentence for a positive label that has not occurred, if so many records say so."""
    seen = summary.seen
    labelled = sum(seen.values())
    if settings.task != "binary" or settings.positive is None or summary.positives:
        return []
    if not labelled or (labelled < ENOUGH and not ended):
        return []
    if label_text(settings.positive) in summary.refused:  # said already: the key has two others
        return []
    return [never_occurs(settings.positive, seen, labelled)]


def _rejected(summary: Summary) -> float:
    """Return how many rejected records had a label; of those that nobody could read, as many as of the others."""
    labelled, all_ = summary.n + summary.rejected_labelled, summary.records - summary.rejected_unread
    share = labelled / all_ if all_ > 0 else 1.0
    return summary.rejected_labelled + summary.rejected_unread * share


def _nothing(summary: Summary) -> str:
    rejected = sum(summary.reasons.values())
    if not rejected:
        return f"nothing was learned: none of {summary.records:,} records has a label"
    told = f"nothing was learned: {rejected:,} of {summary.records:,} records were rejected ({_reasons(summary)})"
    if summary.refused:
        told += f"; labels seen: {counted(summary.refused)} ({SETTING})"
    return f"{told}; {_first(summary)}"


def _reasons(summary: Summary) -> str:
    ordered = sorted(summary.reasons.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {reason}" for reason, count in ordered)


def _first(summary: Summary) -> str:
    """Return the first record of the most frequent reason."""
    reason = min(summary.reasons, key=lambda reason: (-summary.reasons[reason], reason))
    example = summary.examples[reason]
    return f"{example.where}: {reason}: {example.detail}"


def labels_line(summary: Summary, settings: Settings) -> str:
    """Return the labels with the numbers of their records, and which one is positive."""
    if not summary.labels:
        return "no labels"
    told = f"labels: {counted(summary.labels)}"
    if settings.task != "binary":
        return told
    which = "> 0 or true" if settings.positive is None else f"{label_text(settings.positive)!r:.80}"
    return f"{told}; positive is {which}"


def rejections(summary: Summary) -> list[str]:
    """Return a line for each reason: how many records, and the first one."""
    ordered = sorted(summary.reasons.items(), key=lambda item: (-item[1], item[0]))
    return [
        f"{count:,} rejected as {reason}, first {summary.examples[reason].where}: {summary.examples[reason].detail}"
        for reason, count in ordered
    ]


def count_labels(summary: Summary, models: Models, key: IntArray, y: IntArray) -> None:
    """Count the labels of labelled rows, grouped by key."""
    pairs, counts = np.unique(key * (int(y.max(initial=0)) + 1) + y, return_counts=True)
    numbers = [divmod(pair, int(y.max(initial=0)) + 1) for pair in pairs.tolist()]
    names = [label_text(models.labels[k][c]) for k, c in numbers]  # a label has named each
    tally(summary.labels, zip(names, counts.tolist(), strict=True))
    summary.positives += int((y == 1).sum()) if models.settings.task == "binary" else 0

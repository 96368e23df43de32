"""The result of joining a run of records: rows to score or learn, and the records that are no row."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from palearn.engine.join_buffer import Part, Pending
from palearn.engine.validation import Accepted
from palearn.errors import RecordError
from palearn.models.columns import Classes
from palearn.models.keyed import Models
from palearn.models.labels import Naming
from palearn.records import Record
from palearn.types import Int32Array, IntArray


class More(msgspec.Struct, gc=False):
    """What is to know of a row that is not one record with features and label.

    Parameters
    ----------
    record
        The features and the label, if they came in more than one record.
    parts
        The other records of the example, where the row finishes it.
    pending
        The example, where features and label come apart.
    given
        Whether the row has the label and its score is the one that the example had; else the row scores it.
    """

    record: Record | None = None
    parts: Sequence[Part] = ()
    pending: Pending | None = None
    given: bool = False


@dataclass
class JoinResult:
    """The result of joining a run of accepted records.

    Parameters
    ----------
    at, code
        The examples to score or learn, in order: the accepted record that completes each, and its label's code.
    classes
        What their labels are in their keys; None: still to be found, and all examples are plain records.
    more
        Row -> what else is to know of it.
    rejected
        Records that contradict what is known of their key or id: key, record and why.
    kept
        Records that are no row and yet accepted: they are pending now, or duplicates.
    duplicates, pending, expired
        How many; ``pending`` is the change in the number of pending fragments.
    """

    at: IntArray
    code: Int32Array
    classes: Classes | None = None
    more: dict[int, More] = field(default_factory=dict)
    rejected: list[tuple[str, Part, RecordError]] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    duplicates: int = 0
    pending: int = 0
    expired: int = 0


class Rows:
    """A result while it grows, row by row; a label is classified before its row is one."""

    def __init__(self, accepted: Accepted, models: Models) -> None:
        self.accepted, self.result = accepted, JoinResult(np.zeros(0, np.int64), np.zeros(0, np.int32))
        self._models = models
        self._at: list[int] = []
        self._code: list[int] = []
        self._y: list[int] = []
        self._known: list[int] = []
        self._namings: dict[int, Naming] = {}

    def part(self, i: int) -> Part:
        """Return an accepted record as it came."""
        return self.accepted.chunk.part(int(self.accepted.row[i]))

    def reject(self, key: str, part: Part, fault: RecordError) -> None:
        """Note a record that contradicts what is known."""
        self.result.rejected.append((key, part, fault))

    def add(self, i: int, key: str, number: int, code: int, more: More | None = None) -> int | None:
        """Add an example that record ``i`` completes, with a label; return its row, or None: it is rejected."""
        models = self._models
        naming = self._namings.get(number)
        if naming is None:
            known = self._models.labels[number]
            naming = self._namings[number] = Naming(known, models.settings, models.max_labels)
        before = naming.before
        try:
            y = naming.number(self.accepted.columns.labels[code] if code >= 0 else None)
        except RecordError as fault:
            for part in (self.part(i), *(more.parts if more else ())):
                self.reject(key, part, fault)
            return None
        self._at.append(i)
        self._code.append(code)
        self._y.append(y)
        self._known.append(before)
        row = len(self._at) - 1
        if more is not None:
            self.result.more[row] = more
        return row

    def done(self) -> JoinResult:
        """Return the result; what the keys have learned of labels is the models' now."""
        for number, naming in self._namings.items():
            self._models.labels[number] = naming.known
        self.result.at, self.result.code = np.array(self._at, np.int64), np.array(self._code, np.int32)
        self.result.classes = Classes(np.array(self._y, np.int64), np.array(self._known, np.int64))
        return self.result

"""What happened to a bucket's records, in numbers."""

from dataclasses import dataclass, field

from palearn.tables.schemas import STATUSES


@dataclass
class Summary:
    """Statuses, evictions, forgotten keys, and each learner's examples, mistakes and updates."""

    records: int = 0
    statuses: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATUSES, 0))
    keys_evicted: int = 0
    features_evicted: int = 0
    n: int = 0
    mistakes: dict[str, int] = field(default_factory=dict)
    updates: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    forgotten: int = 0

    def add(self, other: "Summary") -> None:
        """Add another bucket's figures."""
        self.records += other.records
        self.keys_evicted += other.keys_evicted
        self.features_evicted += other.features_evicted
        self.n += other.n
        self.forgotten += other.forgotten
        for mine, theirs in (
            (self.statuses, other.statuses),
            (self.mistakes, other.mistakes),
            (self.updates, other.updates),
            (self.reasons, other.reasons),
        ):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count

"""The demonstrations: what ``make demo`` and ``make demo-two-view`` run, in a checkout."""

"""A slice of the comparison with other readers; ``python -m tests.files.fuzz_readers`` is all of it."""

import pytest

from tests.files.fuzz_readers import CASES, differences


@pytest.mark.parametrize("first", range(len(CASES)), ids=[case.__name__ for case in CASES])
def test_what_other_readers_read(first: int) -> None:
    assert differences(range(first, 40 * len(CASES), len(CASES))) == []

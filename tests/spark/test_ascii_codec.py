"""The text of a bucket's bytes: every byte string has one, and no other text is taken for one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palearn.errors import StateFormatError
from palearn.spark.ascii_codec import from_text, to_text


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_bytes_come_back_from_their_text(data: bytes) -> None:
    text = to_text(data)
    assert text.isascii()
    assert len(text) == len(data) + -(-len(data) // 7)
    assert from_text(text) == data


def test_every_single_byte_and_every_place_of_a_high_bit_comes_back() -> None:
    for value in range(256):
        assert from_text(to_text(bytes([value]))) == bytes([value])
    for size in range(1, 30):
        for place in range(size):
            data = bytearray(size)
            data[place] = 0x80
            assert from_text(to_text(bytes(data))) == data


def test_a_length_that_no_bytes_have_is_refused() -> None:
    lengths = {len(to_text(bytes(n))) for n in range(200)}
    for length in set(range(200)) - lengths:
        with pytest.raises(StateFormatError, match=f"{length} characters"):
            from_text("a" * length)


def test_text_that_is_not_ascii_is_refused() -> None:
    with pytest.raises(StateFormatError, match="characters"):
        from_text("é" * 8)

"""What a column of a file may hold."""

from typing import Literal, TypeAlias, get_args

#: ``text`` is one-hot; ``bag``: words, each counted; ``id``, ``weight`` and ``time``: that field of the record.
Kind: TypeAlias = Literal["number", "text", "boolean", "bag", "id", "weight", "time", "ignore"]
KINDS: tuple[Kind, ...] = get_args(Kind)

"""What all sections of a configuration share."""

from typing import Annotated

import msgspec
from msgspec import Meta

Text = Annotated[str, Meta(min_length=1)]

#: Fields that no text made of a configuration shows: logs and tracebacks are read by more people than it is.
_HIDDEN = ("password", "options", "secret_access_key", "session_token")


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A section of the configuration; a key that it does not know is an error."""

    def __repr__(self) -> str:
        """Return the section's fields, without those that may hold a secret."""
        shown = (f"{name}={'…' if name in _HIDDEN else repr(getattr(self, name))}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(shown)})"

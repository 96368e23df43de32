"""What the site needs beside mkdocs: links that leave docs/ lead to files of the repository, and are text here."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^]]+)\]\(\.\./([^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write ``[text](../PATH)`` as the text and the path in the repository."""
    return _OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2]}` in the repository)", markdown)

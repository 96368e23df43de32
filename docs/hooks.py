"""What the site needs beside mkdocs.

Links that leave docs/ lead to files of the repository, and are text here; docstrings have roles that only Sphinx knows.
"""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^]]+)\]\(\.\./([^)#]+)(#[^)]*)?\)")
_ROLE = re.compile(r":(?:func|class|mod|data|attr|meth):(?=<code>)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write ``[text](../PATH)`` as the text and the path in the repository."""
    return _OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2]}` in the repository)", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Leave out ``:func:`` and the like before a name."""
    return _ROLE.sub("", html)

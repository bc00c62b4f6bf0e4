"""Blocks of a document that are made from results.

A block stands between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

import re

_BLOCK = re.compile(r"<!-- begin (.+?) -->\n(.*?)<!-- end \1 -->", re.DOTALL)


def read_blocks(text):
    """Return name -> content of the blocks of a document, without outer blank lines."""
    return {name: content.strip("\n") for name, content in _BLOCK.findall(text)}


def fill_blocks(text, contents):
    """Put contents into the blocks of a document.

    Args:
        text: The document.
        contents: Name of a block -> its new content. Other blocks keep theirs.

    Returns:
        The document.

    Raises:
        ValueError: If the document has no block of a name.
    """
    missing = contents.keys() - read_blocks(text).keys()
    if missing:
        raise ValueError(
            f"document: has no block {', '.join(sorted(missing))}, expected lines "
            "<!-- begin NAME --> and <!-- end NAME --> for each. Add them where the "
            "table is to stand."
        )

    def fill(match):
        name, content = match.groups()
        content = contents.get(name, content.strip("\n"))
        return f"<!-- begin {name} -->\n\n{content}\n\n<!-- end {name} -->"

    return _BLOCK.sub(fill, text)

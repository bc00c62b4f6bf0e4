"""Definitions of WordNet 3.0, from the files of Debian's package `wordnet-base`.

A line of `data.noun`, `data.verb`, `data.adj` or `data.adv` is a synset, a set of words
with one meaning: its byte offset in the file, the number of its lexicographer file, its
part of speech, the number of its words in hexadecimal, the words, pointers to other
synsets, and after a bar the gloss, which is the definition and examples
(https://wordnet.princeton.edu/documentation/wndb5wn).
"""

import dataclasses
import re
from pathlib import Path

DEBIAN_FOLDER = "/usr/share/wordnet"
# Lexicographer files 0 to 44: adj.all, adj.pert, adv.all, noun.Tops, ..., adj.ppl.
NUM_LABELS = 45

_FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
_INSTALL = "Install the Debian package wordnet-base, or fetch the file again."
# Where an adjective stands: beautiful(a), galore(ip).
_SYNTACTIC_MARKER = re.compile(r"\((a|p|ip)\)$")


@dataclasses.dataclass(frozen=True)
class Synset:
    """One meaning.

    Attributes:
        words: Tuple of the words that have it.
        label: Number of its lexicographer file, 0 to 44.
        gloss: Definition, often with examples in quotation marks.
    """

    words: tuple
    label: int
    gloss: str


def read_wordnet(folder=None):
    """Read the synsets of the four files, in their order.

    Args:
        folder: The folder of the files; `None` is that of the Debian package.

    Returns:
        List of `Synset`.

    Raises:
        ValueError: If a file is missing, not UTF-8 or damaged, or a label does not
            occur.
    """
    folder = Path(folder or DEBIAN_FOLDER)
    missing = [name for name in _FILES if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"{folder}: lacks {', '.join(missing)}, expected the files "
            f"{', '.join(_FILES)} of WordNet. {_INSTALL}"
        )
    synsets = [synset for name in _FILES for synset in _read(folder / name)]
    labels = {synset.label for synset in synsets}
    if labels != set(range(NUM_LABELS)):
        raise ValueError(
            f"{folder}: holds synsets of {len(labels)} lexicographer files, expected "
            f"the numbers 0 to {NUM_LABELS - 1}. {_INSTALL}"
        )
    return synsets


def definition(gloss):
    """Return a gloss without its examples: what comes before the first quotation."""
    return gloss.split('"', 1)[0].rstrip(" ;:,(")


def _read(path):
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        raise ValueError(f"{path}: ends within a line. {_INSTALL}")
    offset = 0
    for line in content.splitlines(keepends=True):
        if not line.startswith(b"  "):  # The licence is indented.
            yield _parse(line, offset, path)
        offset += len(line)


def _parse(line, offset, path):
    try:
        head, gloss = line.decode().split(" | ", 1)
        fields = head.split()
        place, label, num_words = int(fields[0]), int(fields[1]), int(fields[3], 16)
        words = fields[4 : 4 + 2 * num_words : 2]
        if place != offset or len(words) != num_words or not gloss.strip():
            raise ValueError("offset, number of words or gloss")
    except (ValueError, IndexError) as error:
        raise ValueError(
            f"{path}: the line at byte {offset} is not a synset ({error}). {_INSTALL}"
        ) from error
    return Synset(
        tuple(_SYNTACTIC_MARKER.sub("", word).replace("_", " ") for word in words),
        label,
        gloss.strip(),
    )

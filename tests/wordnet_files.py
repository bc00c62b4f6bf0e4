"""WordNet's files in small, in WordNet's own format."""


def gloss_of(label, copy, file):
    """A definition, the same for every second copy, and an example."""
    return f'meaning {copy % 2} of {label}; "an example | of {file}"'


def write_wordnet(folder, copies=3, gloss_of=gloss_of):
    """The four files, in small: all labels, some glosses twice. Returns the glosses."""
    folder.mkdir(exist_ok=True)
    glosses = []
    for name, labels in (
        ("noun", range(3, 29)),
        ("verb", range(29, 44)),
        ("adj", (0, 1, 44)),
        ("adv", (2,)),
    ):
        content = b"  1 This is the licence.  \n"
        for label in labels:
            for copy in range(copies):
                gloss = gloss_of(label, copy, name)
                line = f"{len(content):08d} {label:02d} n 02 new_word(p) 0 b 0 000"
                content += f"{line} | {gloss}  \n".encode()
                glosses.append(gloss)
        (folder / f"data.{name}").write_bytes(content)
    return glosses

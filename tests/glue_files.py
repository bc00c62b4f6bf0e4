"""GLUE's files in small, in the format they are published in."""

import csv

# The folder of a task within its archive; MRPC has none, it is published elsewhere.
FOLDERS = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "qqp": "QQP",
    "stsb": "STS-B",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
}
NUM_TRAIN, NUM_OTHERS = 7, 6


def prepare_glue(name, folder, monkeypatch, label_of=None):
    """Prepare a task with tensorflow-datasets' own code, from files instead of a URL.

    `label_of(index)` is what the files say of an example; by default the labels take
    turns. Returns the examples by the names of the published files: lists of a tuple
    of texts and a label.
    """
    import tensorflow_datasets as tfds

    builder = tfds.builder(name, data_dir=folder / "data")
    config = builder.builder_config
    downloads = folder / "downloads"
    written, files = _write(config, downloads, label_of or _turns(config))
    manager = tfds.download.DownloadManager
    monkeypatch.setattr(manager, "download_and_extract", lambda *_: str(downloads))
    monkeypatch.setattr(manager, "download", lambda *_: files)
    builder.download_and_prepare()
    return written


def _turns(config):
    """The labels 0, 1, ... in turn, as the files write them."""
    if config.name == "stsb":
        return lambda index: f"{index * 5 / 6:.3f}"
    names = config.label_classes
    in_words = config.name in ("mnli", "qnli", "rte")
    return lambda index: (names if in_words else range(len(names)))[index % len(names)]


def _write(config, downloads, label_of):
    parts = ("_matched", "_mismatched") if config.name == "mnli" else ("",)
    others = [f"{split}{part}" for split in ("dev", "test") for part in parts]
    sizes = {"train": NUM_TRAIN} | dict.fromkeys(others, NUM_OTHERS)
    num_texts = len(config.text_features)
    written = {
        split: [
            (
                tuple(f"{split} Ä {index} {place}" for place in range(num_texts)),
                label_of(index),
            )
            for index in range(size)
        ]
        for split, size in sizes.items()
    }
    if config.name == "mrpc":
        return written, _write_mrpc(downloads, written)
    for split, examples in written.items():
        header = [*config.text_features.values()]
        rows = [list(texts) for texts, _ in examples]
        if not split.startswith("test"):
            header.append(config.label_column)
            rows = [[*texts, label] for texts, label in examples]
            if config.name == "cola":  # has no header but in the test split
                rows = [["gj04", label, "", *texts] for texts, label in examples]
                header = rows.pop(0)
        _write_table(downloads / FOLDERS[config.name] / f"{split}.tsv", [header, *rows])
    return written, None


def _write_mrpc(downloads, written):
    """Training and validation examples are in one file; a list says which validate."""
    titles = ["#1 ID", "#2 ID", "#1 String", "#2 String"]
    ids = {
        split: [[f"{split}{index}", str(index)] for index in range(len(examples))]
        for split, examples in written.items()
    }
    rows = {
        split: [
            [label, *pair, *texts]
            for pair, (texts, label) in zip(ids[split], examples, strict=True)
        ]
        for split, examples in written.items()
    }
    tables = {
        "dev_ids": ids["dev"],
        "train": [["\ufeffQuality", *titles], *rows["train"], *rows["dev"]],
        "test": [["\ufeffQuality", *titles], *rows["test"]],
    }
    for name, table in tables.items():
        _write_table(downloads / name, table)
    return {name: str(downloads / name) for name in tables}


def _write_table(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        writer.writerows(rows)

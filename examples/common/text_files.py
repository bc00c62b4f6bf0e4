"""Documents from UTF-8 text files."""

from pathlib import Path

# What TinyStories and GPT-2's data put between documents.
END_OF_TEXT = "<|endoftext|>"


def read_text(path, option):
    """Read the documents of a text file, or of all files in a folder and below it.

    Args:
        path: A UTF-8 file, or a folder of them. Hidden files are left out.
        option: What the messages call the path, as `"--text"`.

    Returns:
        List of documents in the order of the files' names: the parts between
        `<|endoftext|>`, or the whole file if it has none; none of them blank.

    Raises:
        ValueError: If the path is missing, a file is not UTF-8, or there is no text.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(
            f"{option}: {path} does not exist, expected a text file or a folder of "
            "them. Check the path."
        )
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if _is_text_file(file, path))
    parts = [part for file in files for part in _read(file, option).split(END_OF_TEXT)]
    documents = [part.strip("\r\n") for part in parts if part.strip()]
    if not documents:
        raise ValueError(
            f"{option}: {path} holds no text, expected at least one UTF-8 file that is "
            "not blank."
        )
    return documents


def cut_in_two(text, fraction=0.1):
    """Cut a text at the end of a line (or of a word), the second part to validate.

    Args:
        text: The text.
        fraction: Part of the characters after the cut, about.

    Returns:
        `(first, second)`, which joined give the text.
    """
    at = round(len(text) * (1 - fraction))
    for separator in ("\n", " "):
        end = text.rfind(separator, 0, at)
        if end > 0:
            at = end + 1
            break
    return text[:at], text[at:]


def _is_text_file(file, folder):
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return file.is_file() and not hidden


def _read(file, option):
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{option}: {file} is not UTF-8 (byte {error.start}: {error.reason}). "
            "Convert it, or leave it out of the folder."
        ) from error
    except OSError as error:
        raise ValueError(
            f"{option}: {file} cannot be read ({error.strerror}), expected a UTF-8 "
            "file. Check its permissions."
        ) from error

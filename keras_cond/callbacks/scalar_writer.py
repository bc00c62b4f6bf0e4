"""Scalars for TensorBoard."""


def scalar_writer(log_dir):
    """Opens an event file for scalars.

    Every library that writes them (TensorFlow's and torch's too) needs the package
    `tensorboard`, so that one is used, on all backends.

    Args:
        log_dir: str or path, the folder that TensorBoard is pointed to.

    Returns:
        An object with `add_scalar(name, value, step)`, `flush()` and `close()`.

    Raises:
        ImportError: If TensorBoard is not installed.
    """
    try:
        from tensorboard.summary import Writer
    except ImportError as error:
        raise ImportError(
            "Writing scalars for TensorBoard needs the package `tensorboard`, which "
            f"is not installed. Received: log_dir={str(log_dir)!r}. Install it with "
            "`pip install tensorboard`, or leave `log_dir` out."
        ) from error
    return Writer(str(log_dir))

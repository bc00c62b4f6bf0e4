"""What models are trained on."""

from .loading import load_task

__all__ = ["load_task"]

"""Two reports side by side."""

import dataclasses

import numpy as np

from keras_cond.diagnostics.median import median
from keras_cond.diagnostics.table import format_kappa, format_table, shorten

ROLES = ("query", "key", "value")
QUANTITIES = ("tokens", "attention", "output", "entropy")


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Two reports of the same attention layers; made by `Report.compare`.

    Attributes:
        before: `Report`.
        after: `Report`.
    """

    before: object
    after: object

    @classmethod
    def of(cls, before, after):
        """Checks that two reports can be set side by side.

        Raises:
            ValueError: If one is not a report, or their layers or heads differ.
        """
        got = [_shape(report) for report in (before, after)]
        if got[0] is None or got[0] != got[1]:
            received = [
                type(report).__name__
                if shape is None
                else f"{len(shape)} layers with {sorted(set(shape))} heads"
                for report, shape in zip((before, after), got, strict=True)
            ]
            raise ValueError(
                "Two reports are compared layer by layer. Received: "
                f"{received[0]} and {received[1]}. Expected two reports of models with "
                "as many attention layers and heads; inspect the same architecture."
            )
        return cls(before, after)

    def to_dict(self):
        """Both reports as dicts of Python floats."""
        return {"before": self.before.to_dict(), "after": self.after.to_dict()}

    def plot(self, path):
        """Draws both reports into a file: κ of tokens, first and all attention.

        Args:
            path: The file; its ending says the format.

        Raises:
            ImportError: If matplotlib is missing.
            ValueError: If one of the reports was made without inputs.
        """
        from keras_cond.diagnostics.plots import plot_bars

        plot_bars(self.before, self.after, path)

    def __str__(self):
        names = f"{self.before.model_name} -> {self.after.model_name}"
        parts = [names, "κ of the joint weights", self._weights_table("joint")]
        parts += ["κ of the worst head", self._weights_table("per_head")]
        if self.before.with_inputs and self.after.with_inputs:
            parts += ["κ given inputs, medians; entropy in nats", self._inputs_table()]
        return "\n\n".join(parts)

    def _pairs(self):
        return zip(self.before.layers, self.after.layers, strict=True)

    def _weights_table(self, which):
        def worst(layer, role):
            return float(np.max(getattr(getattr(layer, role), which)))

        rows = [
            [
                shorten(before.path),
                *(_arrow(worst(before, role), worst(after, role)) for role in ROLES),
            ]
            for before, after in self._pairs()
        ]
        return format_table(["layer", "Q", "K", "V"], rows)

    def _inputs_table(self):
        rows = [
            [
                shorten(pair[0].path),
                *(
                    _arrow(*(median(getattr(layer, quantity)) for layer in pair))
                    for quantity in QUANTITIES
                ),
            ]
            for pair in self._pairs()
        ]
        return format_table(["layer", *QUANTITIES], rows)


def _shape(report):
    layers = getattr(report, "layers", None)
    return layers and [layer.num_heads for layer in layers]


def _arrow(before, after):
    return f"{format_kappa(before)} -> {format_kappa(after)}"

"""Condition numbers of the attention layers of a model."""

import dataclasses

from keras_cond.diagnostics.comparison import Comparison
from keras_cond.diagnostics.head_jacobian import JacobianReport
from keras_cond.diagnostics.median import median
from keras_cond.diagnostics.projection_spectrum import ProjectionSpectrum
from keras_cond.diagnostics.table import (
    format_kappa,
    format_table,
    format_worst,
    shorten,
)

ROLES = ("query", "key", "value")
# What the table shows of a head, and the field that says whether a bound is proven.
JACOBIAN_COLUMNS = (
    ("jacobian", ""),
    ("jacobian_bound_nonzero", "jacobian_assumed"),
    ("softmax_attention", ""),
    ("softmax_attention_bound", "softmax_assumed"),
    ("linear_attention", ""),
    ("linear_attention_bound", "linear_assumed"),
)


@dataclasses.dataclass(frozen=True, eq=False)
class LayerReport:
    """Condition numbers of one attention layer.

    The last five are None where no inputs were given, where the layer was not called,
    or where it does not tell. A layer that is called several times has the samples of
    all calls, in their order. Padding is left out.

    Attributes:
        path: str, where in the model the layer is.
        num_heads: int, the number of query heads.
        num_key_value_heads: int.
        query: `ProjectionSpectrum` of the weights that act: with correction and LoRA.
        key: `ProjectionSpectrum`.
        value: `ProjectionSpectrum`.
        tokens: List of floats, κ of the N × D tokens that enter, one a sample.
        attention: List of lists of floats, κ of the N × N attention matrix, for each
            sample and head.
        output: List of floats, κ of what leaves the layer, one a sample.
        entropy: List of lists of floats, mean entropy of a row of attention in nats,
            for each sample and head.
        jacobian: `JacobianReport`.
    """

    path: str
    num_heads: int
    num_key_value_heads: int
    query: ProjectionSpectrum
    key: ProjectionSpectrum
    value: ProjectionSpectrum
    tokens: list | None = None
    attention: list | None = None
    output: list | None = None
    entropy: list | None = None
    jacobian: JacobianReport | None = None

    def to_dict(self):
        """The numbers as Python ints, floats, lists and None."""
        return {
            "path": self.path,
            "num_heads": self.num_heads,
            "num_key_value_heads": self.num_key_value_heads,
            **{role: getattr(self, role).to_dict() for role in ROLES},
            "tokens": self.tokens,
            "attention": self.attention,
            "output": self.output,
            "entropy": self.entropy,
            "jacobian": self.jacobian and self.jacobian.to_dict(),
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Report:
    """What `keras_cond.diagnostics.inspect` found; print it, draw it, compare it.

    Attributes:
        model_name: str.
        layers: List of `LayerReport`, in the order of the model.
        with_inputs: bool, whether the model was called on inputs.
        seconds: float, the time it took.

    Example:

    >>> inputs = keras.Input((5, 8))
    >>> layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
    >>> model = keras.Model(inputs, layer(inputs, inputs))
    >>> report = keras_cond.diagnostics.inspect(model)
    >>> len(report.layers[0].query.per_head)
    2
    >>> text = str(report)
    """

    model_name: str
    layers: list
    with_inputs: bool
    seconds: float

    def to_dict(self):
        """The numbers as Python ints, floats, strings, lists, dicts and None.

        `json.dumps` writes infinite and undefined floats as `Infinity` and `NaN`, which
        Python and JavaScript's JSON5 read back, and strict JSON readers refuse.
        """
        return {
            "model": self.model_name,
            "with_inputs": self.with_inputs,
            "seconds": self.seconds,
            "layers": [layer.to_dict() for layer in self.layers],
        }

    def plot(self, path):
        """Draws κ of every layer and head into a file, on a logarithmic axis.

        Args:
            path: The file; its ending says the format, such as `.png` or `.pdf`.

        Raises:
            ImportError: If matplotlib is missing.
        """
        from keras_cond.diagnostics.plots import plot_layers

        plot_layers(self, path)

    def compare(self, other):
        """Sets this report beside a later one of the same architecture.

        Args:
            other: `Report`, the one after.

        Returns:
            `Comparison`, to print, draw or turn into a dict.

        Raises:
            ValueError: If `other` is not a report, or of other attention layers.
        """
        return Comparison.of(self, other)

    def __str__(self):
        count = len(self.layers)
        title = f"{self.model_name}: {count} attention layer{'s' * (count != 1)}"
        if not self.layers:
            return title
        parts = [
            title,
            "κ of the weights, of the worst head (h) and of all heads joint",
            self._weights_table(),
        ]
        if self.with_inputs:
            parts += [
                "κ given inputs, medians over samples and heads; entropy in nats",
                self._inputs_table(),
            ]
        if any(layer.jacobian for layer in self.layers):
            parts += self._jacobian_parts()
        return "\n\n".join(parts)

    def _weights_table(self):
        rows = []
        for layer in self.layers:
            heads = str(layer.num_heads)
            if layer.num_key_value_heads != layer.num_heads:
                heads += f"/{layer.num_key_value_heads}"
            spectra = [getattr(layer, role) for role in ROLES]
            rows.append(
                [
                    shorten(layer.path),
                    heads,
                    *(format_worst(spectrum.per_head) for spectrum in spectra),
                    *(format_kappa(spectrum.joint) for spectrum in spectra),
                ]
            )
        header = ["layer", "heads", "Q head", "K head", "V head"]
        return format_table([*header, "Q joint", "K joint", "V joint"], rows)

    def _inputs_table(self):
        rows = [
            [
                shorten(layer.path),
                *(
                    format_kappa(median(getattr(layer, quantity)))
                    for quantity in ("tokens", "attention", "output", "entropy")
                ),
            ]
            for layer in self.layers
        ]
        return format_table(
            ["layer", "tokens", "attention matrix", "output", "entropy"], rows
        )

    def _jacobian_parts(self):
        rows, reasons = [], {}
        for layer in self.layers:
            result = layer.jacobian
            if result is None or not result.heads:
                reason = result.reason if result else "the layer was not called"
                reasons.setdefault(reason, []).append(layer.path)
                continue
            rows.append(
                [
                    shorten(layer.path),
                    f"{result.tokens_used} of {result.tokens}",
                    *(
                        format_kappa(median([getattr(h, name) for h in result.heads]))
                        + (
                            ""
                            if all(getattr(h, fine, True) for h in result.heads)
                            else "*"
                        )
                        for name, fine in JACOBIAN_COLUMNS
                    ),
                ]
            )
        parts = [
            "κ of the Jacobian J in (W_Q, W_K, W_V), of softmax attention A and of "
            "linear\nattention L, each beside its upper bound (≤): medians over heads, "
            "first sample,\non a subsample of its tokens"
        ]
        if rows:
            header = ["layer", "tokens", "J", "≤", "A", "≤", "L", "≤"]
            parts.append(format_table(header, rows))
        if any("*" in cell for row in rows for cell in row):
            parts.append(
                "* not proven here. For J, the null direction of the softmax's "
                "derivative is\n  left out; with it the bound is inf. For A and L, "
                "N ≥ D and square weights are\n  assumed."
            )
        for reason, paths in reasons.items():
            parts.append(f"n/a for {len(paths)} layers: {reason}")
        return parts


def _jacobian_cell(heads, name, proven):
    cell = format_kappa(median([getattr(head, name) for head in heads]))
    if not proven or all(getattr(head, proven) for head in heads):
        return cell
    return f"{cell}*"

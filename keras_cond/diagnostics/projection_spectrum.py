"""Spectra of one projection of an attention layer, per head and joint."""

import dataclasses

import numpy as np

from keras_cond.diagnostics.spectrum import kappa_of_spectrum, spectrum, tolerance


@dataclasses.dataclass(frozen=True, eq=False)
class ProjectionSpectrum:
    """Singular values of a query, key or value kernel, as it acts.

    Attributes:
        head_values: Float64 array of shape (heads, min(D, d)): the singular values of
            each head's D × d matrix, largest first.
        joint_values: Float64 array of shape (min(D, heads · d),): those of the matrix
            that has the heads side by side.
        per_head: List of floats, κ of each head.
        joint: float, κ of the joint matrix.
    """

    head_values: np.ndarray
    joint_values: np.ndarray
    per_head: list
    joint: float

    @classmethod
    def of(cls, kernel):
        """Measures a kernel.

        Args:
            kernel: NumPy array of shape (heads, D, d).

        Returns:
            A `ProjectionSpectrum`.
        """
        kernel = np.asarray(kernel)
        joint = np.concatenate(list(kernel), axis=-1)
        head_values, joint_values = spectrum(kernel), spectrum(joint)
        return cls(
            head_values,
            joint_values,
            kappa_of_spectrum(head_values, tolerance(kernel)).tolist(),
            float(kappa_of_spectrum(joint_values, tolerance(joint))),
        )

    @property
    def norm_per_head(self):
        """List of floats: the spectral norm of each head's matrix."""
        return self.head_values[:, 0].tolist()

    @property
    def norm(self):
        """The spectral norm of the joint matrix, a float."""
        return float(self.joint_values[0])

    def to_dict(self):
        """The numbers as Python floats; the singular values are left out."""
        return {
            "per_head": self.per_head,
            "joint": self.joint,
            "spectral_norm_per_head": self.norm_per_head,
            "spectral_norm": self.norm,
        }

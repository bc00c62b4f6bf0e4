"""Floating-point operations of conditioning, and the time of as many plain products.

Operations are those of matrix products: 2 r k c for (r × k)(k × c). Left out are sums
and scalings of matrices (in proportion to N D where products take N D min(N, D)) and
products with a vector, which are below 2 % together for N, D >= 64. With r × c the
matrix on its smaller side (r <= c), forward:

    size        3 squarings (r r r) of a Gram matrix; never differentiated
    polar       7 quintics, each a Gram matrix (r c r), a square and (r r c);
                where N >= 3 D in three stages, each a Gram matrix and (r r c), and
                19 small products (r r r)
    svd graying 6 quintics in two stages: two Gram matrices, two (r r c); and small
                products: 7 squares, 10 for the next Gram matrices, 4 to join them, 14
                for logarithms and 7 for the exponential
    dct graying (N N D) and (N D D), there and back; where D is even, two of
                (N D/2 D/2) stand for the second

The gradient of a product takes two products of the same size, one for each factor; in
stages, of the long products only the first Gram matrix has one. The derivative of the
polar factor is written out: each quintic takes one product of changes of each size,
and another (r r c). The first and the last two have kept their matrices; the others
compute Gram matrix, square and iterate again. In stages there are three long products
(one is (r c r)) and 46 small ones.
The bases of the DCT are constant and have none. A graying of raw patches has no
gradient at all: nothing before it is trained. For an SVD, 6 c r² + 20 r³ operations
(G. Golub, C. Van Loan, "Matrix Computations", section 8.6) stand in for products.
"""

import dataclasses
import math

import numpy as np
from benchmarks.backends import compiled
from benchmarks.timing import seconds_of
from keras import ops

SQUARINGS = 3
POLAR_QUINTICS = 7
# Whose matrices are kept for the way back.
KEPT_QUINTICS = 3
# A matrix with so many times as many rows as columns is conditioned in stages.
LONG = 3
STAGES = 3
POLAR_SMALL_PRODUCTS = {False: 19, True: 19 + 43}
GRAYING_STAGES = 2
GRAYING_SMALL_PRODUCTS = 42
CALLS = 9
# Small products are timed as so large a batch that starting a call does not count.
LEAST_OPERATIONS = 1e8


@dataclasses.dataclass(frozen=True)
class Product:
    """`count` products of `batch` matrices, (rows × inner)(inner × columns)."""

    count: float
    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def operations(self):
        """Floating-point operations of all of them."""
        return 2 * self.count * self.batch * self.rows * self.inner * self.columns


def polar_products(batch, rows, columns, gradient=False):
    """Products of `condition` with `method="newton_schulz"`.

    Args:
        batch: Number of matrices.
        rows: N.
        columns: D.
        gradient: Whether the correction is differentiated too.

    Returns:
        List of `Product`.
    """
    r, c = sorted((rows, columns))
    if rows >= LONG * columns:
        small = POLAR_SMALL_PRODUCTS[gradient]
        counts = (STAGES + gradient, small, STAGES + 2 * gradient)
    elif gradient:
        again = POLAR_QUINTICS - KEPT_QUINTICS
        counts = (2 * POLAR_QUINTICS + again,) * 2 + (3 * POLAR_QUINTICS + again,)
    else:
        counts = [POLAR_QUINTICS] * 3
    return _products(batch, r, c, *counts)


def graying_products(batch, rows, columns, gradient=False):
    """Products of `svd_graying` with `method="newton_schulz"`."""
    r, c = sorted((rows, columns))
    times = 3 if gradient else 1
    long = GRAYING_STAGES - 1 + times
    return _products(batch, r, c, long, GRAYING_SMALL_PRODUCTS * times, long)


def _products(batch, r, c, grams, small, long):
    """The squarings that find the size, and so many products of each shape."""
    return [
        Product(SQUARINGS, batch, r, r, r),
        Product(grams, batch, r, c, r),
        Product(small, batch, r, r, r),
        Product(long, batch, r, r, c),
    ]


def dct_products(batch, rows, columns, gradient=False):
    """Products of `dct_graying`; the bases have no gradient."""
    count = 4 if gradient else 2
    parts = 1 if columns % 2 else 2
    part = columns // parts
    return [
        Product(count, batch, rows, rows, columns),
        Product(parts * count, batch, rows, part, part),
    ]


def svd_products(batch, rows, columns):
    """As many products as an SVD has operations, by the count above."""
    r, c = sorted((rows, columns))
    return [Product((6 * c * r**2 + 20 * r**3) / (2 * r * r * c), batch, r, r, c)]


def total_operations(products):
    """Floating-point operations of a list of `Product`."""
    return sum(product.operations for product in products)


def seconds_of_products(products, mode):
    """Time of plain float32 products of these shapes, in this process.

    Args:
        products: List of `Product`.
        mode: How functions are compiled, as in `compiled`.

    Returns:
        Seconds: for each shape the median of a few calls, times their number.
    """
    rng = np.random.default_rng(0)
    multiply = compiled(ops.matmul, mode)
    total = 0.0
    for product in products:
        once = product.operations / product.count
        repeats = math.ceil(LEAST_OPERATIONS / once)
        left, right = (
            ops.convert_to_tensor(rng.normal(size=shape).astype("float32"))
            for shape in (
                (repeats * product.batch, product.rows, product.inner),
                (repeats * product.batch, product.inner, product.columns),
            )
        )
        multiply(left, right)
        times = [
            seconds_of(lambda x=left, y=right: multiply(x, y)) for _ in range(CALLS)
        ]
        total += product.count * float(np.median(times)) / repeats
    return total

"""A covariance as Sigma = U D U', U unit upper triangular, D diagonal and never negative: Bierman's form.

Subtracting beta Sigma x x' Sigma from Sigma itself loses what is left of a variance to rounding, after which
x' Sigma x can be negative and the next step may go anywhere. The factors are updated in place instead
(Bierman: Factorization methods for discrete sequential estimation, 1977, chapter V): x' Sigma x is a sum of
squares whatever was rounded, and the cost is that of the subtraction.

A triangle of n features is n (n + 1) / 2 numbers, column after column: column ``j`` begins at ``j (j + 1) / 2``
and holds U[0, j] ... U[j - 1, j], D[j]. So a new feature, with its own variance and independent of the others,
is appended without moving a number, and one put between others moves them but changes none.
"""

import numpy as np

from palearn.learners.jit import kernel

#: Smallest D that a step may leave.
SMALLEST_D = 1e-290


@kernel
def project(u, start, n, f, g):  # type: ignore[no-untyped-def]
    """Return x' Sigma x for f = U'x, which is given; writes g = D f. Never negative."""
    v = 0.0
    for j in range(n):
        g[j] = 0.0
        if f[j] != 0.0:
            g[j] = u[start + j * (j + 1) // 2 + j] * f[j]
            v += f[j] * g[j]
    return v


@kernel
def times(u, start, n, slot, value, low, high, scale, shift, f):  # type: ignore[no-untyped-def]
    """Write f = U'x for the sparse x of ``value[low:high]`` at ``slot * scale + shift``."""
    f[:n] = 0.0
    add_times(u, start, n, slot, value, low, high, scale, shift, 1.0, f)


@kernel
def add_times(u, start, n, slot, value, low, high, scale, shift, factor, f):  # type: ignore[no-untyped-def]
    """f += factor U'x for the sparse x of ``value[low:high]`` at ``slot * scale + shift``."""
    for e in range(low, high):
        i = slot[e] * scale + shift
        x = factor * value[e]
        f[i] += x
        at = start + i * (i + 1) // 2 + i
        for j in range(i + 1, n):
            at += j
            f[j] += u[at] * x


@kernel
def spread(u, start, n, g, b):  # type: ignore[no-untyped-def]
    """Write b = U g; with g = D U'x it is Sigma x."""
    for j in range(n):
        b[j] = g[j]
        if g[j] != 0.0:
            column = start + j * (j + 1) // 2
            above = u[column : column + j]
            for i in range(above.size):
                b[i] += above[i] * g[j]


@kernel
def _representable(u, start, n, f, g, r):  # type: ignore[no-untyped-def]
    """Whether the shrunk factors are: U grows as 1 / sqrt(D), so D may not come near the smallest float."""
    before = r
    for j in range(n):
        if f[j] != 0.0:
            after = before + f[j] * g[j]
            d = u[start + j * (j + 1) // 2 + j]
            if not (np.isfinite(f[j] / before) and (d == 0.0 or d * (before / after) >= SMALLEST_D)):
                return False
            before = after
    return True


@kernel
def shrink(u, start, n, f, g, r, b):  # type: ignore[no-untyped-def]
    """Sigma -= Sigma x x' Sigma / (r + x' Sigma x), given f = U'x and g = D f; r > 0. Writes b = Sigma x.

    The b is that of the covariance before it shrinks. Sigma stays as it is where float64 cannot hold the result,
    which takes a variance below about 1e-290.
    """
    if not _representable(u, start, n, f, g, r):
        spread(u, start, n, g, b)
        return
    before = r
    for j in range(n):
        b[j] = 0.0
        if f[j] == 0.0:
            continue
        column = start + j * (j + 1) // 2
        after = before + f[j] * g[j]
        step, pull = -f[j] / before, g[j]
        above = u[column : column + j]  # a slice: its loop needs no checks of the index, and is twice as fast
        for i in range(above.size):
            old = above[i]
            above[i] = old + b[i] * step
            b[i] += pull * old
        b[j] = pull
        u[column + j] *= before / after
        before = after


@kernel
def variances(u, start, n, out):  # type: ignore[no-untyped-def]
    """Write the diagonal of Sigma."""
    for j in range(n):
        column = start + j * (j + 1) // 2
        d = u[column + j]
        out[j] = d
        for i in range(j):
            out[i] += u[column + i] * d * u[column + i]


@kernel
def keep(u, start, n, stay):  # type: ignore[no-untyped-def]
    """Return the triangle of the features ``stay`` (ascending): the marginal covariance.

    Modified weighted Gram-Schmidt on the rows that stay (Thornton 1976), from the last to the first.
    """
    size = stay.size
    rows = np.zeros((size, n))
    d = np.empty(n)
    for j in range(n):
        d[j] = u[start + j * (j + 1) // 2 + j]
    for k in range(size):
        i = stay[k]
        rows[k, i] = 1.0
        for j in range(i + 1, n):
            rows[k, j] = u[start + j * (j + 1) // 2 + i]
    out = np.zeros(size * (size + 1) // 2)
    for j in range(size - 1, -1, -1):
        column = j * (j + 1) // 2
        length = 0.0
        for m in range(n):
            length += rows[j, m] * d[m] * rows[j, m]
        out[column + j] = length
        if not length > 0.0:
            continue
        for i in range(j):
            part = 0.0
            for m in range(n):
                part += rows[i, m] * d[m] * rows[j, m]
            part /= length
            out[column + i] = part
            for m in range(n):
                rows[i, m] -= part * rows[j, m]
    return out

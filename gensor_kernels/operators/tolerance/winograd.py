"""Error bound of a convolution by Winograd's F(2 x 2, 3 x 3), against the float64 reference; base.py defines the terms.

An output is the sum, over 9 of the 16 components and with signs, of m_ij = sum over channels of U_ij V_ij, with U = G
g G^T of the filter and V = B^T d B of the image (winograd.cu).  Roundings happen in both transforms, in the products
and their sums over C channels, and in the transform back.  Let bars denote the same formulas with the absolute values
of all constants and data: |U| <= U-bar = |G| |g| |G^T|, |V| <= V-bar.

*Any data*: a term U V is rounded at most twice in V (one addition per dimension), four times in U (two per dimension;
a half is exact), and in at most C + 16 additions and products, splits included, and a sum of components in at most 4
more: the error is at most (C + 27) u T, T being the sum over the 9 components of sum_c U-bar V-bar.  T is 64 / 9
times the sum of the direct terms' sizes where all elements are equally large, and can be any number of times that where
they are not, because a transform joins elements that no term joins (Barabasz, Anderson, Soodhalter and Gregg, Error
analysis and improving the accuracy of Winograd convolution for deep neural networks, arXiv:1803.10986).

*Data without order*: independent roundings have a standard deviation of 0.41 u of the partial result.  Sums over
channels give each component 0.41 sqrt(C) u P_ij, P_ij = hypot(m_ij, sqrt(sum (U V)^2)), as in base.py; the errors
of the 9 components are independent.  Roundings of a transform change a term by at most 0.41 sqrt(2) u U-bar V-bar
(image) and 0.41 * 2 u (filter), each partial result being part of the bar; channels are independent, but up to 3
components share a rounding, which costs a factor sqrt(3): 0.41 * sqrt(18) u N in all, N^2 being the sum over
components and channels of (U-bar V-bar)^2.  The four additions of the transform back give at most 0.41 * 2 u M, M the
sum of the 9 |m_ij|.  The first two are independent: seven standard deviations are at most sqrt(9 C sum P_ij^2 + 169
N^2) u + 6 u M.

A component that leaves the range makes its outputs infinite or NaN: there is no bound where T, or a sum on the way to
U or V, may exceed the largest number.  A NaN of the image reaches exactly the outputs
that read it, because an output's components read exactly its own 3 x 3 elements; an infinity does too, but subtracted
from itself in a transform it becomes NaN there.
"""

from __future__ import annotations

import numpy as np

from gensor_kernels.operators.types.dtypes import facts

#: V = B^T d B, U = G g G^T, y = A^T m A.
BT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], dtype=np.float64)
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], dtype=np.float64)
AT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], dtype=np.float64)


def _both(matrix: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Return matrix data matrix^T of the last two axes; elements at zeros of the matrix are not read."""
    rows = _along(matrix, np.swapaxes(data, -1, -2))
    return _along(matrix, np.swapaxes(rows, -1, -2))


def _along(matrix: np.ndarray, data: np.ndarray) -> np.ndarray:
    found = [sum(data[..., j] * row[j] for j in range(len(row)) if row[j]) for row in matrix]
    return np.stack(found, axis=-1)


def bound(x: np.ndarray, w: np.ndarray, pad: tuple[int, int], out: tuple[int, int], structured: bool) -> np.ndarray:
    """Return the bound on the error of y (n, oh, ow, k) by float32 kernels.

    ``x`` (n, h, w, c) and ``w`` (k, 3, 3, c) are float64; ``pad`` are zeros above and to the left of the image, ``out``
    is (oh, ow).
    """
    with np.errstate(all="ignore"):
        tiles = _tiles(x, pad, out)
        v, v_bar = (_components(*pair) for pair in ((BT, tiles), (np.abs(BT), np.abs(tiles))))
        filters = np.moveaxis(w, 3, 1)
        u, u_bar = (_components(*pair) for pair in ((G, filters), (np.abs(G), np.abs(filters))))
        v, v_bar = (each.reshape(16, np.prod(tiles.shape[:3], dtype=int), x.shape[3]) for each in (v, v_bar))
        whole = [_back(each, out, tiles.shape[:3]) for each in _error(v, v_bar, u, u_bar, structured)]
        total, first, *second = whole
        found = first if structured else np.sqrt(first) + second[0]
        channels, kind = x.shape[3], facts("float32")
        found = found + 9 * (channels + 27) * kind.smallest_subnormal
        return np.where(total < kind.maximum / 4, found, np.inf)


def _components(matrix: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Return components (16, ..., c) of data (..., c, side, side)."""
    found = _both(matrix, data)
    return np.moveaxis(found.reshape(*found.shape[:-2], 16), -1, 0)


def _error(v: np.ndarray, v_bar: np.ndarray, u: np.ndarray, u_bar: np.ndarray, structured: bool) -> list[np.ndarray]:
    """Return arrays (16, positions, k) to be summed over an output's components: a total, and parts of the bound."""
    roundoff, channels = facts("float32").unit_roundoff, v.shape[-1]

    def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left @ np.swapaxes(right, -1, -2)

    total = product(v_bar, u_bar)
    # The transforms themselves must stay in range, too.
    total = np.maximum(total, np.maximum(v_bar.max(-1, initial=0)[:, :, None], u_bar.max(-1, initial=0)[:, None]))
    if structured:
        return [total, (channels + 27) * roundoff * total]
    m, squares = product(v, u), product(v * v, u * u)
    sums = 9.0 * channels * (m * m + squares)
    transforms = 169.0 * product(v_bar * v_bar, u_bar * u_bar)
    return [total, roundoff**2 * (sums + transforms), 6.0 * roundoff * np.abs(m)]


def _tiles(x: np.ndarray, pad: tuple[int, int], out: tuple[int, int]) -> np.ndarray:
    """Return the windows that each 2 x 2 outputs read, (n, rows, columns, c, 4, 4); 0 in the padding."""
    n, h, w, c = x.shape
    high, wide = (-(-each // 2) for each in out)
    rows, columns = (np.arange(2 * count + 2) - before for count, before in zip((high, wide), pad, strict=True))
    inside = ((rows >= 0) & (rows < h))[:, None] & ((columns >= 0) & (columns < w))
    near = (np.clip(each, 0, max(extent - 1, 0)) for each, extent in ((rows, h), (columns, w)))
    first, second = near
    shape = (n, len(rows), len(columns), c)
    padded = np.where(inside[None, ..., None], x[:, first][:, :, second], 0.0) if x.size else np.zeros(shape)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (4, 4), axis=(1, 2))
    return windows[:, ::2, ::2]


def _back(each: np.ndarray, out: tuple[int, int], grid: tuple[int, ...]) -> np.ndarray:
    """Return |A^T| m |A| of (16, positions, k): (n, oh, ow, k)."""
    m = np.moveaxis(each, 0, -1).reshape(*grid, each.shape[-1], 4, 4)
    y = _both(np.abs(AT), m).transpose(0, 1, 4, 2, 5, 3)
    n, high, _, wide, _, k = y.shape
    return y.reshape(n, 2 * high, 2 * wide, k)[:, : out[0], : out[1]]

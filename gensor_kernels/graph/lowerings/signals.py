"""Fourier transforms, by products with their matrices, and the constants of spectrograms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.dispatch.api.matmul import matmul

from .base import FLOATS, Lowering, Run, Tensor, name_of, refusal
from .elementwise import wide

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node

#: Length up to which a transform is a product with its matrix; longer ones go through the array library's FFT.
LONGEST_PRODUCT = 2048


@lru_cache(maxsize=32)
def _matrix(length: int, kept: int, parts: int, inverse: bool, onesided: bool, dtype: str) -> np.ndarray:
    """Return the matrix (rows, columns) of a transform of `kept` elements, with real and imaginary parts interleaved.

    `parts` is 1 for real elements. A `onesided` transform has half of the frequencies, its inverse reads them and has
    real results.
    """
    half = length // 2 + 1
    count = half if onesided and not inverse else length
    turns = np.outer(np.arange(kept), np.arange(count)) % length  # exact, so that long transforms are
    angles = 2 * np.pi / length * turns * (1 if inverse else -1)
    real, imaginary = np.cos(angles), np.sin(angles)
    if inverse:
        shares = np.full(kept, 1 / length)
        if onesided:  # the other half are the conjugates
            shares[1 : (length + 1) // 2] *= 2
            shares[half:] = 0
        real, imaginary = real * shares[:, None], imaginary * shares[:, None]
    rows = [np.stack([real, imaginary], axis=-1), np.stack([-imaginary, real], axis=-1)][:parts]
    whole = np.stack(rows, axis=1)  # (element, part, frequency, part)
    if inverse and onesided:
        whole = whole[..., :1]
    return np.ascontiguousarray(whole.reshape(kept * parts, -1)).astype(dtype)


def _transform(run: Run, rows: Tensor, length: int, inverse: bool, onesided: bool) -> Tensor:
    """Transform the last axis but one of a tensor (..., elements, parts), of as many elements as there are."""
    kept, parts = min(rows.shape[-2], length), rows.shape[-1]
    rows = rows[..., :kept, :]
    lead, results = rows.shape[:-2], 1 if inverse and onesided else 2
    if length > LONGEST_PRODUCT or name_of(rows) not in FLOATS:
        return _by_library(run, rows, length, inverse, onesided)
    _, rows = run.together(rows)
    flat = rows.reshape(-1, kept * parts)
    weights = run.device(_matrix(length, kept, parts, inverse, onesided, name_of(rows)))
    return run.call(matmul, flat, weights).reshape(*lead, -1, results)


def _by_library(run: Run, rows: Tensor, length: int, inverse: bool, onesided: bool) -> Tensor:
    xp, rows = run.together(rows)
    given = wide(xp, rows)
    values = given[..., 0] + 1j * given[..., 1] if rows.shape[-1] == 2 else given[..., 0]
    if inverse and onesided:
        return xp.fft.irfft(values, n=length)[..., None].astype(rows.dtype)
    found = (xp.fft.ifft if inverse else xp.fft.fft)(values, n=length)
    found = found[..., : length // 2 + 1] if onesided else found
    return xp.stack([found.real, found.imag], axis=-1).astype(rows.dtype)


def _dft(run: Run, node: Node, x: Tensor, length: Tensor = None, axis: Tensor = None) -> Tensor:
    inverse, onesided = bool(node.attribute("inverse")), bool(node.attribute("onesided"))
    along = (-2 if axis is None else int(run.host(axis).item())) % x.ndim
    if length is not None:
        count = int(run.host(length).item())
    else:
        count = 2 * (x.shape[along] - 1) if inverse and onesided else x.shape[along]
    order = [each for each in range(x.ndim - 1) if each != along] + [along, x.ndim - 1]
    found = _transform(run, x.transpose(order), count, inverse, onesided)
    return found.transpose(np.argsort(order).tolist())


def _stft(run: Run, node: Node, x: Tensor, step: Tensor, window: Tensor = None, length: Tensor = None) -> Tensor:
    """Transform windows of a signal (batch, elements, parts), `step` elements apart: (batch, window, frequency, 2)."""
    x = x[..., None] if x.ndim == 2 else x
    by = int(run.host(step).item())
    count = int(run.host(length).item()) if length is not None else x.shape[1] if window is None else window.shape[0]
    frames = 1 + (x.shape[1] - count) // by
    if frames < 1:
        raise refusal(node, f"a signal of {x.shape[1]} elements has no window of {count}")
    xp, x, window = run.together(x, window)
    places = by * xp.arange(frames)[:, None] + xp.arange(count)
    rows = x[:, places]
    if window is not None:
        rows = rows * window[:, None]
    return _transform(run, rows, count, False, bool(node.attribute("onesided")))


def _window(weights: Sequence[float]) -> Lowering:
    """Return the lowering of a window that is a sum of cosines."""

    def lowering(run: Run, node: Node, size: Tensor) -> Tensor:
        from onnx import helper

        count = int(run.host(size).item())
        last = count if node.attribute("periodic") else count - 1
        angles = 2 * np.pi * np.arange(count) / max(last, 1)
        found = sum(weight * np.cos(order * angles) for order, weight in enumerate(weights))
        return np.asarray(found).astype(helper.tensor_dtype_to_np_dtype(node.attribute("output_datatype")))

    return lowering


def _mel(run: Run, node: Node, bins: Tensor, length: Tensor, rate: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the matrix (frequencies, bins) of triangles that are equally wide on the mel scale."""
    from onnx import helper

    count, size, samples = (int(run.host(each).item()) for each in (bins, length, rate))
    ends = [2595 * math.log10(1 + float(run.host(each).item()) / 700) for each in (low, high)]
    mels = ends[0] + np.arange(count + 2) * (ends[1] - ends[0]) / (count + 2)
    edges = np.floor((size + 1) * 700 * (10 ** (mels / 2595) - 1) / samples).astype(np.int64)
    places = np.arange(size // 2 + 1)[:, None]
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (places - left) / np.maximum(middle - left, 1) * ((places >= left) & (places <= middle))
    rising = np.where(middle == left, places == middle, rising)
    falling = (right - places) / np.maximum(right - middle, 1)
    found = np.where((places >= middle) & (places < right), falling, rising)
    return found.astype(helper.tensor_dtype_to_np_dtype(node.attribute("output_datatype")))


#: Weights of the cosines of windows: the standard's, which gives Hamming's as 25/46.
_WINDOWS: dict[str, tuple[float, ...]] = {
    "BlackmanWindow": (0.42, -0.5, 0.08),
    "HammingWindow": (25 / 46, -21 / 46),
    "HannWindow": (0.5, -0.5),
}
LOWERINGS: dict[str, Callable[..., Tensor]] = {
    **{name: _window(weights) for name, weights in _WINDOWS.items()},
    "DFT": _dft,
    "MelWeightMatrix": _mel,
    "STFT": _stft,
}

"""Rounding to block-scaled formats, drawn: bit by bit as ml_dtypes' types round."""

from typing import Any

import ml_dtypes
import numpy as np

import gensor_kernels as gk
from gensor_kernels.operators.products.quantised import FORMATS

from .drawing import FLOATS, FORMS, Draw, dtype_of
from .serving import Served

TYPES = {"mxfp8": ml_dtypes.float8_e4m3fn, "mxfp8_e5m2": ml_dtypes.float8_e5m2}
FLOAT4, FLOAT8 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn
ALPHAS = (0.75, 2, 0.0, -3.0, 1e-30, np.inf, np.nan, np.float32(0.1), np.array(0.5), np.array(3, np.float32))


def bits_of(values: np.ndarray, kind: Any) -> np.ndarray:
    """Numbers rounded to a type, which they saturate; NaN without a sign, in 4 bits 0."""
    most = float(ml_dtypes.finfo(kind).max)
    bits = np.clip(np.nan_to_num(values, nan=0), -most, most).astype(kind).view(np.uint8)
    return np.where(np.isnan(values), 0 if kind is FLOAT4 else 0x7F, bits).astype(np.uint8)


def rounded(x: np.ndarray, form: str, alpha: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Elements and scales of an array as the specifications say."""
    kind = TYPES.get(form, FLOAT4)
    group = FORMATS[form].group
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // group, group)
    most = np.abs(blocks).max(-1, initial=0)
    if form == "nvfp4":
        scales = bits_of(most / np.float32(6) / alpha, FLOAT8)
        factors = scales.view(FLOAT8).astype(np.float32) * alpha
        numbers = blocks / np.where(factors == 0, np.float32(np.inf), factors)[..., None]
    else:
        emax = np.floor(np.log2(float(ml_dtypes.finfo(kind).max)))
        exponents = np.clip(np.floor(np.log2(most.astype(np.float64))) - emax, -127, 127)
        finite = np.isfinite(most)
        scales = np.where(finite, np.nan_to_num(exponents) + 127, 255).astype(np.uint8)
        numbers = np.where(finite[..., None], blocks.astype(np.float64) / np.exp2(exponents)[..., None], np.nan)
    bits = bits_of(numbers, kind).reshape(x.shape)
    return (bits[..., ::2] | bits[..., 1::2] << 4 if kind is FLOAT4 else bits), scales


def quantize(draw: Draw, served: Served) -> None:
    form, dtype = draw.pick([*FORMATS]), draw.pick(FLOATS)
    group = FORMATS[form].group
    k = group * (0 if draw.often(0.03) else draw.pick([1, 1, 2, 3, 5]))
    shape = (*draw.pick([(), (draw.extent(),), (draw.extent(),), (2, draw.extent()), (3, 1)]), k)
    spread = draw.pick([0, 3, 140])  # of blocks: all equal, of a tensor's scale, of any
    powers = draw.rng.integers(-spread, spread + 1, (*shape[:-1], k // group, 1)) * (draw.rng.random() < 0.9)
    values = draw.values((*shape[:-1], k // group, group), dtype).astype(np.float64)
    values = np.where(draw.often(0.2) & (draw.rng.random(powers.shape) < 0.5), -0.0, np.ldexp(values, powers))
    x = draw.lay_out(values.reshape(shape).astype(dtype_of(dtype)), draw.pick([*FORMS, "contiguous"]))
    draw.traits |= {form, dtype, *["zero-size"] * (0 in shape), *["size one"] * (1 in shape)}
    alpha = draw.pick(ALPHAS) if form == "nvfp4" and draw.often(0.5) else None
    draw.traits |= {"alpha"} if alpha is not None else set()
    if draw.refuses(0.1, "numbers or blocks that do not fit"):
        wrong = [(x.astype(np.int16), form), (x[..., :-1], form), (x.sum(), form), (x, "mxfp6")]
        served.call(gk.quantize, *draw.pick(wrong if k else wrong[::3]), alpha=alpha)
    elements, scales, factor = served.call(gk.quantize, x, form, alpha=alpha)
    size = np.abs(x.astype(np.float32))
    most = size.max(where=np.isfinite(size), initial=0) / np.float32(6 * 448)
    wanted = np.float32(1 if form != "nvfp4" else (most or 1) if alpha is None else alpha)
    bits, own = rounded(x, form, wanted)
    assert elements.dtype == scales.dtype == np.uint8 and scales.shape == own.shape
    np.testing.assert_array_equal(factor, wanted)
    np.testing.assert_array_equal(scales, own)
    np.testing.assert_array_equal(elements, bits)


CASES = {"quantize": quantize}

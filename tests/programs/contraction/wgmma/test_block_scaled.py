"""Products of 8-bit floats with scales per block: declaration, and Programs on the emulator."""

import numpy as np
import pytest

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.products import block_scaled
from gensor_kernels.operators.types.dtypes import decode, encode
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from tests.programs.warpgroups import ARCH

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
WORKLOAD = block_scaled.workload(512, 512, 1024)


def test_the_declaration_means_that():
    rng = np.random.default_rng(0)
    m, n, k = 3, 150, 272
    a, b = (decode(E4M3, encode(E4M3, rng.standard_normal(shape))) for shape in ((m, k), (n, k)))
    d, e = rng.uniform(0.5, 1.5, (m, 3)), rng.uniform(0.5, 1.5, (2, 3))
    wanted = np.zeros((m, n))
    for row, column, place in np.ndindex(m, n, k):
        scale = d[row, place // 128] * e[column // 128, place // 128]
        wanted[row, column] += a[row, place] * b[column, place] * scale
    declared = operator(block_scaled.NAME)
    found = declared.reference({"a": a, "b": b, "d": d, "e": e}, {"m": m, "n": n, "k": k})
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert declared.names == ("a", "b", "d", "e", "c")
    arrays = {"a": encode(E4M3, a), "b": encode(E4M3, b), "d": d.astype(np.float32), "e": e.astype(np.float32)}
    values = declared.expect(block_scaled.workload(m, n, k, out="float32"), arrays).values
    np.testing.assert_allclose(values, wanted, rtol=1e-6, atol=1e-4)


def test_what_is_served():
    assert Space(WORKLOAD, ARCH).names == ("contraction_wgmma",)
    odd = block_scaled.workload(64, 128, 520)
    for name, family in FAMILIES.items():
        assert family.serves(odd, ARCH) is not None, name
    with pytest.raises(UnsupportedError, match="float32"):
        block_scaled.workload_from_views({name: view for name, view in _views().items()})


def _views():
    views = {}
    for operand in operator(block_scaled.NAME).operands(WORKLOAD):
        kind = {"d": "float16", "e": "float32", "c": "bfloat16"}.get(operand.name, E4M3)
        views[operand.name] = block_scaled.contiguous(operand.shape, kind)
    return views

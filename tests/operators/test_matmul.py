"""The matmul reference and its scale."""

import numpy as np

from gensor_kernels.operators.products import matmul


def test_int8_is_exact_and_wraps_like_int32():
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, size, dtype=np.int8) for size in ((7, 300), (300, 9)))
    np.testing.assert_array_equal(matmul.reference(a, b), a.astype(np.int64) @ b.astype(np.int64))
    worst = np.full((1, 140_000), -128, np.int8)
    assert matmul.reference(worst, worst.T)[0, 0] == 140_000 * 2**14 - 2**32


def test_the_sizes_that_portfolios_are_chosen_for_fill_their_range():
    usual = matmul.OPERATOR.usual(matmul.workload(64, 64, 64))
    sizes = np.array([[each.size[axis] for axis in "mnk"] for each in usual])
    assert len({each.key() for each in usual}) == len(usual) == 96 and not (sizes % 8).any()
    assert (sizes >= (8, 8, 32)).all() and (sizes.min(axis=0) <= (8, 8, 40)).all() and (sizes <= 8192).all()
    for axis, middle in enumerate((256, 256, 512)):  # as many below the middle of the logarithms as above
        assert 44 <= (sizes[:, axis] < middle).sum() <= 52
    octants = {tuple(row) for row in (sizes > (256, 256, 512)).tolist()}
    assert len(octants) == 8 and {each.size["batch"] for each in usual} == {1, 16}

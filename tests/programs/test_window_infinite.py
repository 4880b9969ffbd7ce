"""Infinite elements beside a window that slides: its taps are padded to whole reads, and zero times infinity is NaN."""

import numpy as np

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from tests.doubles.stored import store_kernels
from tests.mutator.programs.window import window_configurations


def test_only_outputs_that_see_an_infinity_have_one(no_databases):
    [each] = [each for each in window_configurations() if each.name == "sliding"]
    kernel, arch = each.candidate, lookup(each.arch)
    store_kernels(no_databases, arch, (kernel.program, each.workload))
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((1, 9, 14, 14), np.float32), rng.standard_normal((9, 1, 5, 5), np.float32)
    places = [(channel, 3 + channel % 5, 13 - channel) for channel in range(9)]
    for place in places:
        x[(0, *place)] = np.inf
    how = {"groups": 9, "padding": 1}
    with gensor_kernels.emulated(each.arch):
        assert gensor_kernels.explain(gensor_kernels.conv2d, x, w, **how).family == "window"
        found = gensor_kernels.conv2d(x, w, **how)
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), (2, 3))
    wanted = (windows * w[:, 0, None, None].astype(float)).sum((-2, -1))
    assert np.isinf(wanted).sum() > 50 and not np.isnan(wanted).any()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)

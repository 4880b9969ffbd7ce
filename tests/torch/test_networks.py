"""Whole networks through `from_torch` and `torch.compile`, against eager PyTorch.

A float32 result is correct if its distance from the float64 result is at most four times eager float32's, and a few
roundings of the largest value: kernels and eager PyTorch sum the same terms in other orders, and the errors of both
grow equally with depth.
"""

import copy
import os

import pytest

import gensor_kernels

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from gensor_kernels.torch import gensor  # noqa: E402

from .networks import NETWORKS, made, tensors  # noqa: E402

#: Two networks by default; all of them with TORCH_NETWORKS=all, for they take minutes.
CHOSEN = list(NETWORKS) if os.environ.get("TORCH_NETWORKS") == "all" else ["mobilenet", "bert"]


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    gensor.reset()


def check(found, network, inputs):
    with torch.no_grad():
        single = tensors(network(*inputs))
        wide = [each.double() if each.is_floating_point() else each for each in inputs]
        exact = tensors(copy.deepcopy(network).double()(*wide))
    assert len(found) == len(single)
    for mine, eager, true in zip(found, single, exact, strict=True):
        assert mine.dtype == eager.dtype and mine.shape == eager.shape
        rounding = 8 * torch.finfo(torch.float32).eps * true.abs().max()
        assert (mine - true).abs().max() <= 4 * (eager - true).abs().max() + rounding
        assert true.abs().max() > 0


@pytest.mark.parametrize("name", CHOSEN)
def test_from_torch(name):
    network, inputs, axes = made(name)
    names = {axis: torch.export.Dim.DYNAMIC for axis in axes}
    model = gensor_kernels.from_torch(network, inputs, dynamic_shapes=tuple(names for _ in inputs))
    with gensor_kernels.emulated("sm_87"):
        for count in (3, 2):
            given = tuple(each[:count] for each in inputs)
            found = model(*given)
            check(list(found) if isinstance(found, tuple) else [found], network, given)


@pytest.mark.parametrize("name", CHOSEN)
def test_compile(name, recwarn):
    network, inputs, _ = made(name)
    compiled = torch.compile(network, backend=gensor)
    with gensor_kernels.emulated("sm_87"):
        for count in (3, 2):
            given = tuple(each[:count] for each in inputs)
            with torch.no_grad():
                found = tensors(compiled(*given))
            check(found, network, given)
    assert not [str(each.message) for each in recwarn if "eagerly" in str(each.message)]

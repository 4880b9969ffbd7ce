"""The message about an absent vendor, and calls that need none."""

import numpy as np
import pytest

from benchmarks.gpu.vendors import registry
from gensor_kernels.operators.attention import attention
from gensor_kernels.operators.products import matmul
from gensor_tuner.measure.operands import Noise

from ..test_operators import session

__all__ = ["session"]


@pytest.fixture
def without_torch(session, monkeypatch):
    def absent(emulated):
        raise ImportError("No module named 'torch'")

    monkeypatch.setattr(registry, "Torch", absent)
    monkeypatch.setattr(session, "vendors", ("cupy", "torch", "flash", "cudnn"))
    return registry.Vendors(session)


def compared(session, vendors, workload):
    """Return the vendors that agree with a kernel that computes what CuPy does, and why others are left out."""

    def ours(operands):
        def launch():
            operands.out.view(np)[...] = operands.vendor()()

        return launch

    return vendors.agreeing(workload, Noise(session.device), ours, registry.EAGER)


def test_flash_attention_without_pytorch_is_left_out_with_the_reason(session, without_torch):
    good, refused = compared(session, without_torch, attention.workload(24, 24, heads=2, head=16))
    assert good.keys() == {"cupy"} and refused.keys() == {"torch", "flash", "cudnn"}
    assert "No module named 'torch'" in refused["flash"]


def test_products_do_not_miss_attention(session, without_torch):
    good, refused = compared(session, without_torch, matmul.workload(8, 16, 24, dtype="float32"))
    assert good.keys() == {"cupy"} and refused.keys() == {"torch"}

"""Operands against the memory of a part."""

from dataclasses import replace

from gensor_kernels.machine.arch import archs, lookup
from gensor_kernels.machine.attributes import from_attributes
from gensor_kernels.machine.memory import too_large
from gensor_kernels.operators.products import matmul, quantised

ORIN = lookup("orin-nano-8gb")


def test_every_listed_part_has_a_memory():
    assert all(1 < arch.memory_gb < 500 for arch in archs())


def test_operands_beyond_the_memory_are_told_with_their_sizes():
    assert (
        too_large(matmul.workload(2**20, 32, 4096, dtype="float32"), ORIN)
        == "its operands (a 16 GiB, b 512 KiB, c 128 MiB) exceed the 8 GiB of orin-nano-8gb"
    )
    huge = too_large(matmul.workload(*[2**31 - 1] * 3, dtype="complex128"), lookup("h200"))
    assert huge and "a 68,719,476,672 GiB" in huge and len(huge) < 300


def test_operands_may_fill_the_memory():
    whole = matmul.workload(2**15, 2**15, 2**15, dtype="float16")  # three times 2 GiB
    assert too_large(whole, replace(ORIN, memory_gb=6.0)) is None
    assert too_large(whole, replace(ORIN, memory_gb=5.99)) is not None
    weights = 2**17  # two numbers of 4 bits per byte
    assert too_large(quantised.workload(16, weights, weights, bits=4), ORIN) is None
    assert too_large(quantised.workload(16, weights, weights, bits=8), ORIN) is not None


def test_a_device_that_is_not_listed_has_the_memory_of_its_driver():
    huge = matmul.workload(2**16, 2**16, 2**16, dtype="float32")  # three times 16 GiB
    seen = from_attributes((8, 6), "NVIDIA GeForce RTX 3070", 46, 1.725, memory_bytes=8 << 30)
    assert "exceed the 8 GiB of nvidia-geforce-rtx-3070" in str(too_large(huge, seen))
    assert too_large(huge, from_attributes((8, 6), "NVIDIA GeForce RTX 3070", 46, 1.725)) is None  # it is unknown

"""A machine with an RTX 3090 over the strict double of the driver, and kernels for it."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.build import nvrtc
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.errors import ToolMissingError
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import SIZE
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from tests.doubles.strict import elf
from tests.doubles.strict.launches import emulated

PART = "rtx-3090"


@cache
def compiled(part=PART, name="contraction_mma", index=1):
    """A kernel of float16 products, with NVRTC's binary: one of the family's default Programs; split in two on PART."""
    wanted, arch = matmul.workload(128, 64, 256, dtype="float16"), lookup(part)
    (family,) = (each.family for each in Space(wanted, arch).families if each.family.name == name)
    program = list(family.starters(wanted, arch))[index]
    program = program.replace(split_k=2) if part == PART else program
    made = library.generate(program, wanted, arch)
    built = nvrtc.compile_cubin(made.code.source, made.code.target)
    assert built.error is None, built.error
    code = replace(made.code, cubin=built.cubin)
    return library.Kernel(made.digest, program, wanted, lambda: code)


def make_product(machine, monkeypatch, *chosen):
    """product(a, b, out) of the public function, by a kernel of `compiled`, which the emulator runs."""
    try:
        kernel = compiled(*chosen)
    except ToolMissingError as error:
        pytest.skip(str(error))
    machine.executes(kernel.code.cubin, partial(emulated, kernel.code.source, kernel.code.target))
    serve_by(machine, monkeypatch, kernel)
    return lambda a, b, out=None: gk.matmul(a, b, out=out)


def serve_by(machine, monkeypatch, kernel):
    contents = library.Contents({kernel.digest: kernel})
    monkeypatch.setattr(current, "only", Runtime(machine.device(), library.Library(contents)))


def operands(machine, rows=128):
    """Small integers, whose product float16 has exactly, and that product."""
    rng = np.random.default_rng(rows)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((rows, 256), (256, 64)))
    return machine.cupy.asarray(a), machine.cupy.asarray(b), a.astype(np.float32) @ b.astype(np.float32)


def raises(*names):
    return pytest.raises(RuntimeError, match="|".join(f"CUDA_ERROR_{name}:" for name in names))


def loaded(device, image, *launches):
    """A launcher of launches by an image; nothing is compiled in its place."""
    device.compiles = False
    code = library.code(f"// {hash(image)}", {}, "sm_86", image)
    return device.load(code, launches or [Launch("kernel", 1, 32, 0)])


def written(entry=None, capability=(8, 6), specific=False, name="kernel"):
    return elf.written(capability, {name: entry or elf.Entry(parameters=(SIZE,))}, specific)

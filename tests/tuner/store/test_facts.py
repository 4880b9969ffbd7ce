"""Facts of a stored binary about its machine code, and rows of earlier versions, which have fewer."""

import json
from dataclasses import asdict

import pytest

from gensor_kernels.build import resources
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.sass import Steady
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_tuner.build.pool import candidate
from gensor_tuner.store.kernel_rows import kernel_rows


@pytest.mark.skipif(resources.find_nvdisasm() is None, reason="nvdisasm is not installed")
def test_facts_have_the_steady_path_of_the_hot_loop():
    arch, family, work = lookup("sm_87"), FAMILIES["contraction_mma"], workload(512, 512, 512, dtype="float16")
    chosen = candidate(family, family.starters(work, arch)[0], work)
    binary = compile_cubin(chosen.source(), arch.target)
    facts = json.loads(kernel_rows(chosen, binary, work, arch)[1].facts)[chosen.entry]
    read = Steady(**facts["steady"])
    assert read == resources.disassemble(binary.cubin, binary.target)[chosen.entry].steady
    assert read.products["HMMA.16816.F32"] <= facts["hot_loop"]["HMMA"] and read.stalls >= read.instructions > 0
    earlier = {name: value for name, value in facts.items() if name != "steady"}
    assert Steady(**earlier.get("steady", {})) == Steady() and asdict(Steady())["products"] == {}

"""Launches that start before the one in front has ended: that their kernels wait, where they are made so, and how."""

import ctypes
import re
from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.build import nvrtc
from gensor_kernels.build.resources import instructions
from gensor_kernels.devices import driver
from gensor_kernels.devices.emulator import KernelFault
from gensor_kernels.families.contraction.cost import reduction
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.contraction.rewrite import ozaki, pack
from gensor_kernels.families.contraction.wgmma.family import ContractionWgmma
from gensor_kernels.families.core.family import Launch
from gensor_kernels.machine.arch import DEPENDENT_LAUNCH, archs, lookup
from gensor_kernels.machine.roofline import HIDDEN_US, RAMP_US, ramp_us
from gensor_tuner.verify.verify import verify
from tests.campaign_size import sample
from tests.doubles.emulated_kernels import execute
from tests.mutator.engine import mutations
from tests.mutator.engine.configuration import Changed
from tests.mutator.engine.mutations import DEPENDENT
from tests.mutator.programs import Configuration, configurations

#: Kernels that wait for the launch before: products after a launch that prepares operands, and last launches.
PRODUCTS = ("simt", "mma", "sliced", "packed", "aligned", "floats_wgmma", "packed_wgmma", "prepared_wgmma")
PRODUCTS += tuple(f"{name}_tcgen05" for name in ("aligned", "prepared", "packed", "floats"))
FINISHING = ("reduce", "normalise", "interleave")


def launches_of(each: Configuration) -> tuple[Launch, ...]:
    made = each.candidate
    return made.family.launches(made.program, each.workload)


#: A Program for each of them: but for gemv, in which it is not the first launch.
FEW = {launch.entry: each for each in reversed(configurations()) for launch in launches_of(each) if launch.dependent}
BEHIND = [pytest.param(entry, each, id=entry) for entry, each in FEW.items()]


def test_all_launches_of_a_call_but_the_first_are_dependent():
    for each in configurations():
        first, *rest = launches_of(each)
        # It overwrites a workspace that the call before may still read, unless it waits for that one like an early one.
        assert first.dependent == bool(each.candidate.program.get("early"))
        assert all(launch.dependent for launch in rest)
    others = {"attention_combine", "rows_reduce", "gemv"}
    assert FEW.keys() == {f"contraction_{name}" for name in PRODUCTS + FINISHING} | others


#: Instructions that access global memory.
ACCESS = re.compile(r"LDG|STG|LD$|ST$|RED|ATOMG?$|UTMALDG|UTMASTG|UBLK")
TARGETS = ("sm_87", "sm_90a", "sm_100", "sm_120")
#: Targets of kernels with tensor copies.
ASYNCHRONOUS = {"sm_90": ("sm_90a",), "sm_100": ("sm_100a",)}
COMPILED = [
    pytest.param(each, target, id=f"{each.family} {target}")
    for each in dict.fromkeys(FEW.values())
    for target in ASYNCHRONOUS.get(each.arch, TARGETS)
]


@pytest.mark.parametrize(("each", "target"), sample(COMPILED, 6))
def test_the_machine_code_waits_before_it_touches_global_memory(each, target):
    binary = nvrtc.compile_cubin(each.candidate.source(), target)
    assert binary.error is None
    [functions] = instructions([binary.cubin], target)
    if functions is None:
        pytest.skip("nvdisasm is not installed")
    for launch in launches_of(each):
        names = [instruction.opcode.split(".")[0] for instruction in functions[launch.entry]]
        first = next(i for i, name in enumerate(names) if ACCESS.match(name))
        waits = launch.dependent and target != "sm_87"
        assert names[:first].count("ACQBULK") == names.count("ACQBULK") == waits


@pytest.mark.parametrize(("entry", "each"), sample(BEHIND, 3))
def test_a_missing_wait_is_caught(entry, each):
    assert each.verify(lambda text: text + "\n").outcome == "ok"
    text = each.candidate.family.text
    waits = {
        re.findall(r"^\w*KERNEL\((\w+)\b.*\{$", text[: site.begin], re.MULTILINE)[-1]: site
        for site in mutations.sites(text)
        if site.function in DEPENDENT
    }
    named = re.search(r"^#define AFTER_ANOTHER (\w+)$", text, re.MULTILINE)
    (mutant,) = mutations.mutants(waits["AFTER_ANOTHER" if named and named[1] == entry else entry])
    verdict = each.verify(mutant.apply)
    assert verdict.outcome == "failed" and "does not wait for the launch in front" in verdict.detail


FRONT = """#include <gensor_emulator_dependent.h>
KERNEL(front, Params, 32, 0) {
    Vec<4> value;
    value.set(0, (i32)(thread_index() + 1));
    store_global(gptr<i32>(params.p[0]) + thread_index(), value, true);
}
"""
BEHIND = """KERNEL(test, Params, 32, 0) {
    const gptr<i32> from = gptr<i32>(params.p[0]) + thread_index(), to = gptr<i32>(params.p[1]) + thread_index();
    const bool early = params.mode == 1, late = thread_index() == params.n;
    if (early) store_global(to, load_global<4>(from, true), true);
    if (params.mode == 2) store_global(to, Vec<4>::zero(), true);
    if (params.mode == 3) copy_async<4>(shared_base() + 4 * thread_index(), from, true);
    if (params.mode == 4) give_flag(gptr<u64>(params.p[1]), 1);
    if (params.mode == 5) take_flag(gptr<u64>(params.p[1]), 1);
    if (params.mode == 6) load_written<4>(from);
    if (params.mode == 7) prefetch_line<1>(from, true);
    prefetch_line<2>(from, true);
    if (!late) grid_dependency_wait();
    if (params.mode == 0 && !late) store_global(to, load_global<4>(from, true), true);
}
"""


def run_behind(mode: int, late: int = -1, waits: bool = True) -> np.ndarray:
    arrays = [np.zeros(32, np.int32) for _ in range(2)]
    entries = [("front", False), ("test", waits)]
    execute(FRONT + BEHIND, arrays, mode=mode, n=late, entries=entries, shared=128, writable=2)
    return arrays[1]


def test_what_waits_reads_what_the_launch_in_front_wrote():
    assert run_behind(0).tolist() == list(range(1, 33))


@pytest.mark.parametrize("mode", range(1, 8), ids=["load", "store", "copy", "give", "take", "written", "line"])
def test_an_access_before_the_wait_is_caught(mode):
    with pytest.raises(KernelFault, match=r"test.cu line \d+ does not wait for the launch in front") as caught:
        run_behind(mode)
    assert caught.value.kind == "race"


def test_one_thread_that_does_not_wait_is_caught():
    with pytest.raises(KernelFault, match="thread 7: the thread ends without having waited"):
        run_behind(0, late=7)


@pytest.mark.parametrize("mode", [1, 2])
def test_an_ordinary_launch_need_not_wait(mode):
    assert run_behind(mode, waits=False).tolist() == (list(range(1, 33)) if mode == 1 else [0] * 32)


class EarlyWgmma(ContractionWgmma):
    def launches(self, program, workload):
        return tuple(replace(each, dependent=True) for each in super().launches(program, workload))


@pytest.mark.parametrize(
    ("waiting", "line"),
    [
        ("thread_index() > 0", r"tma_tiles.cuh line \d+"),
        ("thread_index() < 128", r"tma_boxes.cuh line \d+"),
        ("true", None),
    ],
)
def test_tensor_copies_and_stores_before_the_wait_are_caught(waiting, line):
    each = next(each for each in configurations() if each.name == "stored by copies")
    made, kernel = each.candidate, "WGMMA_KERNEL(contraction_wgmma) {\n"

    def edit(text: str) -> str:
        assert kernel in text
        changed = f"#include <gensor_emulator_dependent.h>\n{kernel}if ({waiting}) grid_dependency_wait();\n"
        return text.replace(kernel, changed)

    changed = Changed(made.program, made.constants, edit)
    changed.__dict__["family"] = EarlyWgmma()
    verdict = verify(changed, each.workload, use_cache=False)
    if line is None:
        assert verdict.outcome == "ok"
    else:
        assert re.search(f"race: .*{line} does not wait for the launch in front", verdict.detail)


def test_the_launch_in_front_costs_less_where_its_end_is_not_waited_for():
    for arch in archs():
        able = DEPENDENT_LAUNCH in arch.features
        assert able == (arch.capability >= (9, 0))
        assert RAMP_US - ramp_us(arch) == pytest.approx(HIDDEN_US if able else 0.0)
    assert 0 < HIDDEN_US < RAMP_US
    able, packed, sliced = lookup("h200"), FEW["contraction_packed"], FEW["contraction_sliced"]
    unable = replace(able, features=able.features - {DEPENDENT_LAUNCH})
    of_packing = [pack.cost(packed.workload, arch)[0] for arch in (unable, able)]
    of_slicing = [ozaki.microseconds(sliced.workload, arch) for arch in (unable, able)]
    e, split = extents(packed.workload), np.array([4])
    of_reduction = [reduction(split, e, arch)[1][0] for arch in (unable, able)]
    for without, saved in (of_packing, of_slicing, of_reduction):
        assert without - saved == pytest.approx(HIDDEN_US)


def test_structs_are_those_of_cuda_h():
    bindings = pytest.importorskip("cuda.bindings.driver")
    attribute, made = bindings.CUlaunchAttribute(), bindings.CUlaunchConfig()
    number = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert number == driver.PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.id, attribute.value.programmaticStreamSerializationAllowed = number, 1
    made.gridDimX, made.gridDimY, made.gridDimZ, made.sharedMemBytes = 1, 2, 3, 7
    made.blockDimX, made.blockDimY, made.blockDimZ = 4, 5, 6
    made.hStream, made.attrs = bindings.CUstream(8), [attribute, attribute]
    made.numAttrs = 2
    found = driver.LaunchConfig.from_address(made.getPtr())
    assert (*found.grid, *found.block, found.shared_bytes, found.stream, found.attribute_count) == (*range(1, 9), 2)
    size = ctypes.sizeof(driver.LaunchAttribute)
    for place in range(2):  # the second shows the size
        each = driver.LaunchAttribute.from_address(found.attributes + place * size)
        assert (each.id, each.value) == (number, 1)
    assert ctypes.sizeof(driver.LaunchConfig) == 56

"""attention_wgmma in addition to its contract (test_contract.py): what it serves, how it reads operands, its machine
code."""

from dataclasses import replace

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import disassemble, instructions
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.attention import sequences
from gensor_kernels.operators.attention.attention import workload
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate
from tests.campaign_size import sample
from tests.doubles.stored import store_kernels

FAMILY, ARCH = FAMILIES["attention_wgmma"], lookup("sm_90")
#: q, k, v, (c, workspace,) in the order of Params
POINTERS = (1 << 20, 2 << 20, 3 << 20, 0, 4 << 20)


def hot_loop(problem, program):
    """Instructions of the loop by opcode; it spills nothing, and ptxas does not warn that it waits for each product."""
    binary = compile_cubin(candidate(FAMILY, program, problem).source(), ARCH.target)
    assert binary.error is None and binary.spill_bytes == binary.stack_bytes == 0, binary.log
    assert "Potential Performance Loss" not in binary.log and "setmaxnreg" not in binary.log, binary.log
    sass = disassemble(binary.cubin, binary.target)
    if sass is None:
        pytest.skip("nvdisasm is not installed")
    loop = sass["attention_wgmma"].hot_loop
    names, count = FAMILY.multiplies(program, problem)
    assert sum(loop.get(name, 0) for name in names) == count
    assert not {"ELECT", "LDS"} & loop.keys()
    return loop


@pytest.mark.parametrize(
    ("head", "causal"),
    sample([(head, causal) for head in (64, 80, 96, 128, 192, 256) for causal in (False, True)], 2),
)
def test_products_of_usual_heads_are_asynchronous(head, causal):
    """Descriptors are in uniform registers."""
    problem = workload(4096, heads=16, head=head, causal=causal)
    program = FAMILY.starters(problem, ARCH)[0]
    loop = hot_loop(problem, program)
    # Of long heads there are more descriptors than uniform registers.
    assert loop.get("R2UR", 0) <= (8 if head > 192 else 0)
    # Exponentials, two that rescale sums, and the reciprocal of a division by the heads of a group.
    assert loop["MUFU"] == program["block_k"] // 2 + 3


@pytest.mark.parametrize("head", sample([64, 128], 1))
def test_the_softmax_runs_between_the_waits_of_a_step(head):
    """Exponentials come after the wait for scores, and before the wait for the product with values."""
    problem = workload(4096, heads=16, head=head)
    program = FAMILY.starters(problem, ARCH)[0]
    binary = compile_cubin(candidate(FAMILY, program, problem).source(), ARCH.target)
    [functions] = instructions([binary.cubin], binary.target)
    if functions is None:
        pytest.skip("nvdisasm is not installed")
    code = functions["attention_wgmma"]
    waits = [at for at, each in enumerate(code) if each.opcode == "WARPGROUP.DEPBAR.LE"]
    left = [code[at].operands for at in waits]
    steps = [i for i, operands in enumerate(left) if operands == "gsb0, 0x1"]
    assert len(steps) == 2  # the loop over cut tiles, and the loop over whole tiles
    for i in steps:
        between = [each.opcode for each in code[waits[i] : waits[i + 1]]]
        assert left[i + 1] == "gsb0, 0x0" and between.count("MUFU.EX2") >= program["block_k"] // 2


@pytest.mark.parametrize("head", sample([64, 128], 1))
def test_packed_sequences_have_the_same_loop(head):
    """Shuffles find a block's sequence, and its numbers are uniform all the same: R2UR takes no descriptor."""
    problem = sequences.workload(8, 16384, 16384, heads=16, head=head, causal=True)
    for program in FAMILY.starters(problem, ARCH)[:3]:
        assert "R2UR" not in hot_loop(problem, program)


def test_values_of_another_sequence_reach_no_result(no_databases):
    """Boxes of keys and values reach into the next sequence, which has NaN and infinities."""
    problem = sequences.workload(2, 200, 200, head=64)
    program = FAMILY.starters(problem, ARCH)[0].replace(block_q=64, block_k=48, stages=2)
    store_kernels(no_databases, ARCH, (program, problem))
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 1, 200, 64)).astype(np.float16) for _ in range(3))
    with gensor_kernels.emulated("sm_90"):
        arguments = {"sizes": [90, 110], "key_sizes": [100, 100]}
        assert gensor_kernels.explain(gensor_kernels.attention, q, k, v, **arguments).family == FAMILY.name
        wanted = gensor_kernels.attention(q, k, v, **arguments)
        k[..., 100:, :], v[..., 100:, :] = np.nan, np.inf
        found = gensor_kernels.attention(q, k, v, **arguments)
    assert np.array_equal(found[0, 0, :90], wanted[0, 0, :90]) and np.isnan(found[0, 0, 90:]).all()


@pytest.mark.parametrize(("operand", "what"), [("a", "queries"), ("b", "keys"), ("d", "values")])
def test_copies_read_adjacent_elements_of_a_head(operand, what):
    problem = workload(8, head=64)
    narrow = replace(problem, alignment=problem.align | {operand: 8})
    apart = replace(problem, layout=problem.layouts | {operand: "s"})
    for each in (narrow, apart):
        assert f"read {what} from addresses" in str(FAMILY.serves(each, ARCH))


def test_which_strides_copies_read():
    problem = workload(100, 60, batch=2, heads=6, kv_heads=2, head=64)
    declared = operator(problem.operator)
    usual = {each.name: each.strides() for each in declared.operands(problem)}

    def reads(**strides):
        return FAMILY.reads(problem, declared.geometry(problem, usual | strides))

    assert reads()
    assert reads(b=(0, 60 * 64, 64, 1))  # one batch entry again and again
    assert not reads(b=(0, 60 * 64, 0, 1)) and not reads(d=(0, 60 * 64, -64, 1))
    assert not reads(a=(0, -6400, 64, 1)) and not reads(a=(0, 0, 64, 1))


@pytest.mark.parametrize("causal", [True, "upper_left"])
def test_steps_that_no_row_sees_are_no_work(causal):
    lattice = FamilySpace(FAMILY, workload(1024, heads=6, kv_heads=2, causal=causal), ARCH)
    program = FAMILY.starters(lattice.workload, ARCH)[0].replace(block_q=128)
    seen = np.minimum(np.arange(42, 1024 + 42, 42), 1024)
    assert lattice.explain(lattice.point(program))["iterations"] == pytest.approx(
        np.mean(np.ceil(seen / program["block_k"]))
    )


def test_the_exchange_of_registers_is_in_the_code():
    problem = workload(1024, heads=4, head=128)
    source = candidate(FAMILY, FAMILY.starters(problem, ARCH)[0], problem).source()
    sass = disassemble(compile_cubin(source, ARCH.target).cubin, ARCH.target)
    if sass is None:
        pytest.skip("nvdisasm is not installed")
    assert sass["attention_wgmma"].opcodes["USETMAXREG"] == 2

"""contraction_wgmma: right on the emulator under every order of events, clean in SASS, and as its header says."""

import pytest

from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.devices.emulator import KernelFault, build
from gensor_kernels.errors import BuildError
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate
from tests.programs.contraction.machine_code import machine_code
from tests.programs.workloads.contraction_harness import Case, Problem, wgmma

PLAIN = {"EPILOGUE_CODES": 31}  # no operations: quickly compiled
PAIR = {"CONSUMERS": 2, "EPILOGUE_STAGED": 0, **PLAIN}
THREE = {"BLOCK_M": 192, "CONSUMERS": 3, "BLOCK_N": 192, "STAGES": 2}
TALL = {"BLOCK_M": 256, "CONSUMERS": 2, "BLOCK_N": 128, "STAGES": 2}

# Every type, layout, number of warpgroups and store route occurs; sizes are ragged on every axis, as far as tensor
# copies allow.
KERNELS = {
    "nt": (wgmma(), Case(70, 72, 328, raster=2, epilogue=("scale", "bias", "relu"))),
    "nn": (wgmma(b="n", EPILOGUE_CODES=3), Case(70, 136, 200, batch=(2, 1, 2), epilogue=("add",))),
    "tn": (wgmma(a="m", b="n", BLOCK_K=128, STAGES=2, **PLAIN), Case(72, 72, 261)),
    "tt": (wgmma(a="m", SPLIT=1, BLOCK_N=80, **PLAIN), Case(72, 88, 520, split=3)),
    "bf16": (wgmma("bfloat16", "float32", BLOCK_N=16, STAGES=8, **PLAIN), Case(67, 20, 712, batch=(1, 1, 3))),
    "direct": (wgmma(EPILOGUE_STAGED=0, BLOCK_N=144, **PLAIN), Case(70, 152, 72)),
    "steps": (wgmma(c="s", C_VECTOR=2, **PLAIN), Case(67, 69, 136)),
    "two": (wgmma(b="n", EPILOGUE_CODES=2, **TALL), Case(264, 136, 200, epilogue=("bias",))),
    "three": (wgmma(**THREE, **PLAIN), Case(200, 200, 136)),
    "tf32": (wgmma("float32", BLOCK_K=32, EPILOGUE_CODES=3), Case(70, 72, 108, epilogue=("add",))),
    "int8": (wgmma("int8", BLOCK_M=128, BLOCK_K=128, **PLAIN), Case(131, 80, 720)),
    "int8 to int8": (wgmma("int8", "int8", BLOCK_K=256, STAGES=2, EPILOGUE_STAGED=0, **PLAIN), Case(70, 80, 528)),
    "fp8": (wgmma("float8_e4m3fn", "bfloat16", B_STORED="e5m2_t", BLOCK_M=128, **PLAIN), Case(131, 72, 1040)),
    "fp8, split": (wgmma("float8_e5m2", A_STORED="e4m3_t", SPLIT=1, **PLAIN), Case(70, 72, 720, split=3)),
    "walking": (wgmma(a="m", PERSISTENT=1, EPILOGUE_CODES=2), Case(136, 136, 200, epilogue=("bias",))),
    "in turns": (wgmma(b="n", PERSISTENT=2, **PAIR), Case(136, 136, 328, batch=(1, 1, 2))),
    "three in turns": (wgmma(PERSISTENT=2, **PAIR | {"CONSUMERS": 3, "SPLIT": 1}), Case(136, 72, 392, split=3)),
    "fp8 in turns": (wgmma("float8_e4m3fn", PERSISTENT=2, **PAIR | {"STAGES": 2}), Case(136, 136, 336)),
    "shared": (wgmma(MIN_BLOCKS=2, EPILOGUE_CODES=2 | 7 << 5), Case(70, 72, 40, epilogue=("bias", "gelu"))),
}


@pytest.mark.parametrize("name", KERNELS)
def test_matches_float64(name):
    kernel, case = KERNELS[name]
    problem = Problem(kernel, case)
    for order, copies in (("forward", "late"), ("reverse", "early"), (5, "late")):
        counters = problem.right(order=order, copies=copies)
        assert counters.bank_conflicts == 0, dict(counters)
        assert counters["tensor_copies"] and counters["group_multiplies"]
        assert not any(counters.global_widths("global_load").get(width) for width in (1, 2)) or case.epilogue
    Problem(kernel, case.without_products()).right()


def test_blocks_that_take_turns_do_not_share_their_rings():
    Problem(wgmma(EPILOGUE_CODES=31), Case(70, 72, 328)).right(order=7, resident=3)


def test_sums_of_eight_bit_floats_that_are_kept_too_long_are_seen():
    kernel = wgmma("float8_e4m3fn", **PLAIN)
    before, after = "multiply<0>(products, a, b, i, 0);", "multiply<1>(products, a, b, i, 0);"
    assert kernel.source().count(before) == 1
    kept = kernel.source().replace(before, after).replace("sums[i][v] + products[v]", "products[v]")
    for source, right in ((kernel.source(), True), (kept, False)):
        problem = Problem(kernel, Case(70, 72, 1280))
        problem.run(build(source))
        assert problem.check().ok == right


# What a faulty kernel does wrong, and how that shows.
FAULTS = {
    "no wait for a full buffer": ("mbarrier_wait(full(turn.slot), turn.parity);", "", {"race", "uninitialised"}),
    "no wait for an empty buffer": ("mbarrier_wait(empty(turn.slot), turn.parity ^ 1);", "", {"race", "invalid"}),
    "a buffer given back too early": ("wgmma_wait<1>();", "wgmma_wait<2>();", {"race"}),
    "products nobody waits for": ("wgmma_wait<0>();\n        hold", "hold", {"race"}),
    "no fence before products": ("wgmma_fence();\n    UNROLL", "UNROLL", {"race"}),
    "mbarriers not fenced": ("mbarrier_fence();\n", "\n", {"race"}),
    "slabs over a ring in use": ("!PERSISTENT\n    barrier();", "!PERSISTENT\n", {"race"}),
    "too few bytes": ("slot), SLOT_BYTES);", "slot), SLOT_BYTES - 16);", {"deadlock", "race"}),
    "an unaligned tile": ("constexpr int RING = ATOM", "constexpr int RING = 512", {"misaligned"}),
    "a tile too low": ("matrix_descriptor(tile + first * 128, 16", "matrix_descriptor(tile + 128, 16", {"invalid"}),
    "registers nobody gave": ("give_registers<ENTRY, GIVEN>();", "", {"deadlock"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(name):
    before, after, kinds = FAULTS[name]
    kernel = wgmma(BLOCK_M=128, CONSUMERS=2, STAGES=2, EPILOGUE_CODES=31)
    source = kernel.source()
    assert source.count(before) == 1, name
    library = build(source.replace(before, after))
    with pytest.raises(KernelFault) as fault:
        for order, copies in (("forward", "late"), ("reverse", "early"), (3, "late")):
            Problem(kernel, Case(136, 72, 640)).run(library, order=order, copies=copies)
    assert fault.value.kind in kinds, fault.value


# The same for blocks that walk tiles, in turns of two warpgroups.
WALKING_FAULTS = {
    "multiplying out of turn": ("mbarrier_wait(turn_of(group)", "(void)(turn_of(group)", {"deadlock", "race"}),
    "a turn nobody passes": (
        "while (within(++step, steps));\n    pass_turn();",
        "while (within(++step, steps));",
        None,
    ),
    "buffers of another's tile": ("turn.skip(steps);", "", {"deadlock", "invalid"}),
    "the last buffer kept": ("if constexpr (PERSISTENT)\n            release(before);", "", {"deadlock"}),
    "slabs over the ring": ("(PERSISTENT ? STAGES * SLOT_BYTES : 0)", "0", {"race"}),
}


@pytest.mark.parametrize("name", WALKING_FAULTS)
def test_faults_of_walking_blocks_are_named(name):
    before, after, kinds = WALKING_FAULTS[name]
    kernel = wgmma(PERSISTENT=2, CONSUMERS=2, STAGES=2, EPILOGUE_CODES=31)
    source = kernel.source()
    assert source.count(before) == 1, name
    with pytest.raises(KernelFault) as fault:
        for order, copies in (("forward", "late"), ("reverse", "early")):
            Problem(kernel, Case(136, 136, 328)).run(build(source.replace(before, after)), order=order, copies=copies)
    assert fault.value.kind in (kinds or {"deadlock", "race"}), fault.value


# Instructions of the hot loop per product: more than ten of these are address arithmetic that should be outside.
@pytest.mark.parametrize(
    ("constants", "most"),
    [
        ({"BLOCK_M": 128, "BLOCK_N": 256, "CONSUMERS": 2, "STAGES": 4}, 17),
        (TALL | PLAIN | {"STAGES": 4, "B_LAYOUT": 1}, 13),
        (THREE | PLAIN | {"A_LAYOUT": 1, "BLOCK_K": 128}, 13),
        (PLAIN | {"BLOCK_N": 128, "MIN_BLOCKS": 2, "SPLIT": 1}, 17),
        (TALL | {"STAGES": 4, "BLOCK_K": 32, "dtype": "float32"}, 13),
        (TALL | {"STAGES": 4, "BLOCK_K": 128, "dtype": "int8"}, 13),
        (PAIR | {"BLOCK_M": 128, "BLOCK_N": 160, "STAGES": 4, "PERSISTENT": 2}, 17),
        (PLAIN | {"BLOCK_M": 256, "BLOCK_N": 160, "CONSUMERS": 2, "STAGES": 3, "PERSISTENT": 1}, 13),
        (TALL | PLAIN | {"STAGES": 4, "A_WINDOW": 1}, 13),
        (PAIR | {"BLOCK_M": 128, "STAGES": 4, "PERSISTENT": 1, "A_WINDOW": 1, "B_LAYOUT": 1}, 22),
        # 64 sums of each of two tiles are added.
        (TALL | {"STAGES": 4, "dtype": "float8_e4m3fn"}, 13 + 16),
    ],
)
def test_hot_loop_in_sass(constants, most):
    dtype = constants.get("dtype", "float16")
    opcode = {"int8": "IGMMA", "float8_e4m3fn": "QGMMA"}.get(dtype, "HGMMA")
    _, entry = machine_code(wgmma(**{"dtype": dtype} | constants), "sm_90a")
    rows = 2 if constants.get("BLOCK_K") == 128 and dtype == "float16" else 1
    sharing = 1 if constants.get("PERSISTENT") == 2 else constants.get("CONSUMERS", 1)
    products = 4 * rows * (constants.get("BLOCK_M", 64) // sharing // 64)
    assert entry.hot_loop[opcode] == products
    assert entry.opcodes["UTMALDG"] >= 2 and entry.opcodes["USETMAXREG"] == 2
    assert sum(entry.hot_loop.values()) <= most * products, entry.hot_loop


@pytest.mark.parametrize(
    ("constants", "sentence"),
    [
        ({"CONSUMERS": 4, "BLOCK_M": 256}, "One to three warpgroups"),
        ({"BLOCK_M": 96}, "whole tiles of 64 rows"),
        ({"BLOCK_N": 24}, "in steps of 16"),
        ({"BLOCK_N": 96, "B_LAYOUT": 1}, "or of 64"),
        ({"BLOCK_K": 32}, "rows of 128 bytes"),
        ({"STAGES": 9}, "2 to 8 buffers"),
        ({"MIN_BLOCKS": 0}, "change hands"),
        ({"BLOCK_M": 256, "BLOCK_N": 256}, "do not fit the registers"),
        ({"BLOCK_M": 128, "BLOCK_N": 208, "PERSISTENT": 1}, "do not fit the registers"),
        ({"PERSISTENT": 2}, "several warpgroups"),
        ({"C_UNIT": 0}, "one by one"),
        ({"IN_TYPE": "float", "B_LAYOUT": 1}, "Only 16-bit rows of k"),
        ({"A_STORED": "e4m3_t", "BLOCK_K": 128, "B_LAYOUT": 0}, "elements of one size"),
        ({"A_STORED": "i8", "B_STORED": "i8", "BLOCK_K": 128, "B_LAYOUT": 0}, "by one another"),
        ({"A_STORED": "e4m3_t", "B_STORED": "e4m3_t", "BLOCK_K": 256, "B_LAYOUT": 0}, "one of 8-bit floats"),
    ],
)
def test_an_illegal_program_is_told_why(constants, sentence):
    with pytest.raises(BuildError) as failure:
        build(wgmma(**constants).source())
    assert sentence in failure.value.log


@pytest.mark.parametrize(("columns", "consumers", "fits"), [(256, 2, True), (256, 3, False), (192, 3, True)])
def test_a_products_sums_fit_the_registers_at_entry(columns, consumers, fits):
    """ptxas refuses m64n256 under a bound of 128 registers, whatever warpgroups take later: it wants 154."""
    workload, arch = matmul.workload(4096, 4096, 4096, dtype="float16"), lookup("sm_90")
    space = FamilySpace(FAMILIES["contraction_wgmma"], workload, arch)
    (program, *_) = space.family.starters(workload, arch)
    program = program.replace(
        block_m=64 * consumers, block_n=columns, consumers=consumers, stages=2, min_blocks=1, persistent=0, split_k=1
    )
    assert space.legal(space.point(program)[None]).tolist() == [fits]
    made = candidate(space.family, program, workload)
    (binary,) = compile_many([(made.source(), arch.target)], 1)
    assert (binary.error is None) == fits

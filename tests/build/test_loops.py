"""Loops and steady paths of machine code that is written by hand."""

from gensor_kernels.build.instruction import Instruction, products
from gensor_kernels.build.loops import hot_loop, loops, steady_path, successors
from gensor_kernels.build.sass import with_targets

from .written import code


def path(*lines: str) -> list[str]:
    """Return opcodes on the steady path of the hot loop."""
    read = code(*lines)
    return [each.opcode for each in steady_path(read, hot_loop(read))]


def test_a_rare_case_is_left_out_and_the_work_of_a_step_is_not():
    found = path(
        "MOV",
        "head: HMMA.16816.F32 | 4",
        "@P0 BRA copied",
        "LDGSTS.E.128 | 2",  # a step whose tile is inside the operand
        "copied: @P1 BRA next",
        "IADD3 | 9",  # a rare case that copies nothing
        "next: @P2 BRA other",
        "LDS | 3",
        "BRA join | 5",
        "other: LDS | 2",  # as many loads and fewer stalls
        "join: HMMA.16816.F32",
        "@P3 BRA head | 5",
        "EXIT",
    )
    assert found == ["HMMA.16816.F32", "BRA", "LDGSTS.E.128", "BRA", "BRA", "LDS", "HMMA.16816.F32", "BRA"]


def test_loops_nest_and_jumps_back_from_moved_code_are_none():
    read = code(
        "outer: MOV",
        "head: FFMA",
        "@P0 BRA rare",
        "back: FFMA",
        "@P1 BRA head",
        "@P2 BRA outer",
        "EXIT",
        "rare: MOV",
        "BRA back",
    )
    assert loops(read) == [(0, 6), (1, 5)] and hot_loop(read) == (1, 5)
    assert hot_loop(code("MOV", "EXIT")) is None


def test_an_inner_loop_is_passed_once():
    found = path("head: HMMA", "wait: SYNCS | 2", "@!P0 BRA wait", "HMMA", "@P1 BRA head")
    assert found == ["HMMA", "SYNCS", "BRA", "HMMA", "BRA"]


def test_an_indirect_branch_reaches_the_targets_of_its_table():
    read = code(
        *("head: FFMA", "BRX R2 -0x40", "FFMA", "BRA next", "one: MUFU", "BRA next", "two: FADD", "next: FFMA"),
        "@P0 BRA head",
    )
    assert successors(read, 1) == [] and len(steady_path(read, (0, 9))) == 9
    read = list(with_targets(read, {16: (6 * 16, 4 * 16, 6 * 16)}))
    assert read[1].targets == (4, 6) and successors(read, 1) == [4, 6]
    assert [each.opcode for each in steady_path(read, (0, 9))] == ["FFMA", "BRX", "FADD", "FFMA", "BRA"]


def test_branches_that_only_diverged_warps_take_do_not_end_a_block():
    assert successors(code("BRA.DIV UR4, slow", "MOV", "EXIT", "slow: EXIT"), 0) == [1, 3]
    assert successors(code("BRA.U UP0, slow", "MOV", "EXIT", "slow: EXIT"), 0) == [1, 3]
    assert successors(code("BRA.U slow", "MOV", "EXIT", "slow: EXIT"), 0) == [3]
    assert successors(code("@P0 EXIT", "EXIT"), 0) == [1] and successors(code("EXIT P0", "EXIT"), 0) == [1]
    assert successors(code("EXIT", "EXIT"), 0) == []
    assert successors(code("BREAK !P0, B0", "CALL.REL.NOINC 0x100", "EXIT"), 0) == [1]


def test_a_call_that_never_returns_leaves_a_loop():
    read = code("head: FFMA", "@P0 CALL.REL.NOINC out", "BRA head", "out: STG", "CALL.REL.NOINC head", "EXIT")
    assert loops(read) == [(0, 3)] and successors(read, 1) == [2, 3] and successors(read, 4) == [5]


def test_a_loop_without_a_known_path_is_taken_whole():
    assert path("head: FFMA | 4", "EXIT", "FFMA", "BRA head | 5") == ["FFMA", "EXIT", "FFMA", "BRA"]


def test_products_are_matrix_instructions_else_multiply_adds():
    assert products(code("HMMA.16816.F32", "FFMA", "IMAD.MOV.U32")) == [True, False, False]
    assert products(code("FFMA", "IMAD", "MOV")) == [True, False, False]
    assert products(code("IMAD", "IMAD.MOV.U32", "IMAD.IADD")) == [True, False, False]


def test_widths_and_clocks():
    widths = {"LDG.E.128": 16, "STS.U16": 2, "LDSM.16.M88.4": 16, "LDSM.16.MT88.2": 8, "LDS": 4, "STG.E.64": 8}
    assert {opcode: Instruction("", opcode).width for opcode in widths} == widths
    assert Instruction("", "LDG.E.U8").width == 1 and Instruction("", "STSM.16.M88").width == 4
    assert [Instruction("", "MOV", "", stall).clocks for stall in (0, 1, 15)] == [1, 1, 15]

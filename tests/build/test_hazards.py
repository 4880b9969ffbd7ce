"""DMMAs that read sums before these are written: in machine code written by hand, and in ptxas' of two kernels."""

from gensor_kernels.build import resources
from gensor_kernels.build.hazards import ENOUGH, find_unguarded
from gensor_kernels.build.instruction import Instruction
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.families.core.source import bind
from gensor_kernels.families.registry import FAMILIES

from .disassembled import DOUBLES, HOPPER, USUAL, miscompiled

MOV, EXIT = Instruction("", "MOV", "R0, R1"), Instruction("", "EXIT")


def dmma(sums, *waits, adds=True, scoreboard=5, shape="16x8x16"):
    """A product that is added to the registers from `sums` on, after waits for scoreboards."""
    operands = f"R{sums}, R64, R80, {f'R{sums}' if adds else 'RZ'}"
    return Instruction("", f"DMMA.{shape}", operands, 1, None, scoreboard, mask(waits))


def mask(waits):
    return sum(1 << wait for wait in waits)


def depbar(scoreboard, left, predicate=""):
    return Instruction(predicate, "DEPBAR.LE", f"SB{scoreboard}, {left:#x}")


def loop(*body):
    """A loop, as a branch goes back where P0 is not set."""
    return [*body, Instruction("!P0", "BRA", "0x0", target=0), EXIT]


def test_the_first_product_of_an_iteration_has_to_wait_for_the_last():
    assert find_unguarded(loop(dmma(8), MOV, dmma(8, 5))) == [0]
    assert find_unguarded(loop(dmma(8, 5), MOV, dmma(8, 5))) == []
    assert find_unguarded(loop(dmma(8, 4), MOV, dmma(8, 5))) == [0]  # of another scoreboard
    assert find_unguarded(loop(dmma(8), MOV, dmma(8))) == [0, 2]
    assert find_unguarded([dmma(8), dmma(8, 5), EXIT]) == []


def test_any_instruction_on_the_way_may_wait_but_on_every_way():
    waits = MOV._replace(waits=mask([5]))
    assert find_unguarded(loop(dmma(8), waits)) == [] and find_unguarded(loop(waits, dmma(8))) == []
    skips = Instruction("P1", "BRA", "0x30", target=3)
    assert find_unguarded(loop(dmma(8), skips, waits, MOV)) == [0]
    table = Instruction("", "BRX", "R2 -0x40", targets=(2, 3))
    assert find_unguarded(loop(dmma(8), table, waits, MOV)) == [0]
    assert find_unguarded(loop(dmma(8), skips._replace(predicate=""), waits, MOV)) == [0]
    assert find_unguarded([dmma(8), EXIT, dmma(8)]) == []


def test_a_depbar_leaves_the_last_products_outstanding():
    assert find_unguarded(loop(dmma(8), depbar(5, 0))) == []
    assert find_unguarded(loop(dmma(8), depbar(5, 1))) == find_unguarded(loop(dmma(8), depbar(4, 0))) == [0]
    assert find_unguarded(loop(dmma(8), depbar(5, 0, "P1"))) == [0]
    assert find_unguarded([dmma(8), dmma(16), depbar(5, 1), dmma(8), EXIT]) == []
    assert find_unguarded([dmma(8), dmma(16), depbar(5, 1), dmma(16), EXIT]) == [3]
    assert find_unguarded([dmma(8), dmma(16, scoreboard=4), depbar(5, 1), dmma(8), EXIT]) == [3]


def test_products_end_in_order():
    assert find_unguarded([dmma(8, scoreboard=None), dmma(16), dmma(8, 5), EXIT]) == []
    assert find_unguarded([dmma(8), dmma(16, scoreboard=4), dmma(8, 4), EXIT]) == []
    assert find_unguarded([dmma(8, scoreboard=None), dmma(8), EXIT]) == [1]


def test_products_in_between_take_long_enough():
    others = [dmma(16 + 8 * number) for number in range(ENOUGH)]
    last = [at + 1 for at in range(ENOUGH)]  # the others' own sums have as many products between
    assert find_unguarded(loop(dmma(8), *others)) == []
    assert find_unguarded(loop(dmma(8), *others[:-1])) == [0, *last[:-1]]


def test_registers_that_are_not_read_or_not_the_sums_are_no_hazard():
    assert find_unguarded(loop(dmma(8, adds=False))) == []
    assert find_unguarded([dmma(8), dmma(16), EXIT]) == [] and find_unguarded([dmma(8), dmma(12), EXIT]) == [1]
    assert find_unguarded([dmma(8, shape="8x8x4"), dmma(12, shape="8x8x4"), EXIT]) == []
    assert find_unguarded(loop(Instruction("", "HMMA.16816.F32", "R8, R64, R80, R8", 1, None, 5))) == []


def test_ptxas_leaves_out_a_wait_in_a_small_kernel_and_none_in_a_large_one():
    family, programs = FAMILIES[USUAL.family], (miscompiled(), USUAL)
    sources = [bind(family.text, family.constants(each, DOUBLES)) for each in programs]
    cubins = [(compile_cubin(source, HOPPER.target).cubin, HOPPER.target) for source in sources]
    small, large = (each[family.name] for each in resources.disassemble_many(cubins))
    assert small.unguarded == 1 and small.opcodes["DMMA"] == 2
    assert large.unguarded == 0 and large.opcodes["DMMA"] > 2

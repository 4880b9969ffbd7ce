"""The ptxas report, and nvdisasm on many cubins: number of processes, cached results, damaged files."""

import random
import subprocess
from collections import Counter

import pytest

from gensor_kernels.build import resources
from gensor_kernels.build.elf import branch_tables, code_sections, entry_usage
from gensor_kernels.build.nvrtc import compile_cubin

from .disassembled import compiled

needs_nvdisasm = pytest.mark.skipif(resources.find_nvdisasm() is None, reason="nvdisasm is not installed")


@pytest.fixture
def processes(monkeypatch):
    started, run = [], resources.tools.run
    monkeypatch.setattr(resources, "_remembered", {})

    def counting(command, code, **options):
        started.append(len(code))
        return run(command, code, **options)

    monkeypatch.setattr(resources.tools, "run", counting)
    return started


@needs_nvdisasm
def test_processes_are_as_many_as_there_is_code_for(processes, monkeypatch):
    cubins = compiled("sm_87")
    together = resources.disassemble_many(cubins, 2)
    (size,) = processes
    assert size == sum(len(section) for cubin, _ in cubins for _, section in code_sections(cubin))
    assert resources.disassemble_many(cubins[::-1], 2) == together[::-1] and len(processes) == 1
    assert resources.disassemble(*cubins[1]) is together[1] and len(processes) == 1
    monkeypatch.setattr(resources, "_remembered", {})
    monkeypatch.setattr(resources, "SHARE_BYTES", size // 2)
    assert resources.disassemble_many(cubins, 2) == together and len(processes) == 3
    assert sum(processes[1:]) == size and min(processes[1:]) >= size // 4


@needs_nvdisasm
def test_only_the_latest_are_remembered(processes, monkeypatch):
    monkeypatch.setattr(resources, "REMEMBERED", 1)
    first, *_, last = cubins = compiled("sm_75")
    assert None not in resources.disassemble_many(cubins)
    for cubin, started in ((last, 1), (first, 2)):
        resources.disassemble(*cubin)
        assert len(processes) == started


@needs_nvdisasm
def test_a_damaged_cubin_takes_no_other_down(processes):
    (first, target), *_, (last, _) = compiled("sm_87")
    code = dict(code_sections(first))["matrix"]
    illegal = first.replace(code, bytes(len(code)))
    cubins = [first, b"not a cubin", illegal, last, first[: len(first) // 2], first]
    found = resources.disassemble_many([(cubin, target) for cubin in cubins], 2)
    assert [read is None for read in found] == [False, True, True, False, True, False]
    assert "matrix" in found[0] and "contraction_simt" in found[3] and found[5] is found[0]
    started = len(processes)
    assert resources.disassemble(illegal, target) is None and len(processes) == started
    assert resources.disassemble(first, "sm_33") is None


@needs_nvdisasm
def test_a_cubin_it_hangs_on_takes_no_other_down(processes, monkeypatch):
    (first, target), (hanging, _), (last, _) = compiled("sm_87")
    marker, run = code_sections(hanging)[0][1], resources.tools.run

    def hang(command, code, timeout):
        if marker in code:
            raise subprocess.TimeoutExpired(command, timeout)
        return run(command, code, timeout=timeout)

    monkeypatch.setattr(resources.tools, "run", hang)
    found = resources.disassemble_many([(first, target), (hanging, target), (last, target)])
    assert [read is None for read in found] == [False, True, False]


def test_sections_of_a_damaged_file_are_refused_or_whole():
    ((cubin, _), *_) = compiled("sm_87")
    sound = code_sections(cubin)
    assert [name for name, _ in sound] == ["copies", "epilogue", "matrix", "scalar", "straight"]
    assert code_sections(cubin[:40]) is None and code_sections(cubin[:-300]) is None
    generator = random.Random(1)
    start = int.from_bytes(cubin[40:48], "little")  # of the section headers
    outcomes = Counter()
    for _ in range(2000):
        damaged = bytearray(cubin)
        place = generator.choice([generator.randrange(64), generator.randrange(start, len(cubin))])
        damaged[place] ^= 1 << generator.randrange(8)
        found = code_sections(bytes(damaged))
        outcomes[found is None] += 1
        assert found is None or all(code in cubin or code in damaged for _, code in found)
    assert min(outcomes.values()) > 100


SWITCH = """
extern "C" __global__ void switching(int *x, int a) {
    int big[40];
    for (int i = 0; i < 40; ++i)
        big[i] = x[i];
    int sum = 0;
    for (int i = 0; i < a; ++i)
        sum += big[x[i] % 40];
    switch (a) {
    case 0: sum = x[7] * 3; break;
    case 1: sum = x[9] / 7; break;
    case 2: sum = x[sum & 31] ^ 5; break;
    case 3: sum = __float_as_int(__int_as_float(sum) * 2.f); break;
    case 4: sum = __popc(sum); break;
    case 5: sum = x[3] - x[5]; break;
    }
    x[0] = sum;
}
"""


@pytest.mark.parametrize("target", ["sm_75", "sm_87", "sm_90a", "sm_120a"])
def test_usage_in_the_file_is_what_ptxas_reports(target):
    binary = compile_cubin(SWITCH, target)
    entry = binary.entries["switching"]
    assert entry.stack_bytes >= 160
    assert entry_usage(binary.cubin)["switching"] == (entry.registers, entry.stack_bytes)
    for damaged in (b"", binary.cubin[:40], b"text" + binary.cubin[4:]):
        with pytest.raises(ValueError, match="no cubin"):
            entry_usage(damaged)


@needs_nvdisasm
@pytest.mark.parametrize("target", ["sm_87", "sm_90a"])
def test_indirect_branches_go_where_the_files_table_says(target):
    binary = compile_cubin(SWITCH, target)
    code = resources.instructions([binary.cubin], target)[0]["switching"]
    tables = branch_tables(binary.cubin, "switching")
    branches = [at for at, each in enumerate(code) if each.name in ("BRX", "BRXU")]
    assert branches and sorted(tables) == [16 * branch for branch in branches]
    for branch in branches:
        assert len(tables[16 * branch]) >= 3
        assert code[branch].targets == tuple(sorted({place // 16 for place in tables[16 * branch]}))
        assert all(0 <= at < len(code) for at in code[branch].targets)
    assert branch_tables(binary.cubin, "another") == {}
    together = resources.instructions([binary.cubin, b"no cubin", binary.cubin], target)
    assert together[0]["switching"] == code == together[2]["switching"] and together[1] is None


def test_without_the_tool_there_are_no_counts(monkeypatch):
    monkeypatch.setattr(resources, "find_nvdisasm", lambda: None)
    assert resources.disassemble(b"\x7fELF", "sm_87") is None

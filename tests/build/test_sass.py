"""Counts from the machine code of real kernels, and the same counts from nvdisasm's other way to print it."""

import json
import re
import subprocess
from collections import Counter
from dataclasses import asdict, replace

import pytest

from gensor_kernels.build import resources
from gensor_kernels.build.sass import GLOBAL_ACCESSES, SHARED_ACCESSES, Sass, Steady, read_listing, summary

from .disassembled import ARCHS, compiled

needs_nvdisasm = pytest.mark.skipif(resources.find_nvdisasm() is None, reason="nvdisasm is not installed")


@pytest.fixture(params=[pytest.param(arch, marks=needs_nvdisasm) for arch in ARCHS])
def sass(request):
    return resources.disassemble(*compiled(request.param)[0])


def test_counts_of_written_kernels(sass):
    """The hot loop is the innermost with the mathematics, or one with a barrier; widths are of the whole entry."""
    matrix, scalar, straight, epilogue = (sass[name] for name in ("matrix", "scalar", "straight", "epilogue"))
    hot = matrix.hot_loop
    assert hot["HMMA"] == 1 and hot["LDS"] == 2 and "LDG" not in hot and "BAR" not in hot
    assert scalar.hot_loop["DFMA"] == 1 and scalar.hot_loop["LDG"] == 1 and straight.hot_loop == {}
    hot = epilogue.hot_loop
    assert hot["FFMA"] == 1 and hot["BAR"] == 2 and hot["LDS"] == 2 and epilogue.opcodes["FFMA"] >= 4
    # Half of the vector that LDS reads is never used.
    assert matrix.accesses == {"LDG": {2: 1, 16: 1}, "LDS": {2: 1, 8: 1}, "STG": {4: 1}, "STS": {2: 1, 16: 1}}
    assert matrix.widths(GLOBAL_ACCESSES) == {2: 1, 4: 1, 16: 1}
    assert matrix.widths(SHARED_ACCESSES) == {2: 2, 8: 1, 16: 1}
    assert scalar.accesses == {"LDG": {16: 1}, "STG": {8: 1}} and straight.accesses == {"STG": {1: 1}}
    if "copies" in sass:
        assert sass["copies"].accesses["LDGSTS"] == {4: 1, 16: 1} and sass["copies"].accesses["STG"] == {8: 1}


def parts(cubin: bytes, folder, *options: str) -> dict[str, list[str]]:
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [resources.find_nvdisasm(), "-c", "-ndf", *options, str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _, *parts = re.split(r"^\s*\.section\s+\.text\.([^\s,]+).*$", text, flags=re.MULTILINE)
    return {name: lines.splitlines() for name, lines in zip(parts[::2], parts[1::2], strict=True)}


@needs_nvdisasm
def test_a_stream_of_all_code_reads_as_the_files_do(tmp_path, monkeypatch):
    cubins = [pair for name in ARCHS for pair in compiled(name)]
    monkeypatch.setattr(resources, "_remembered", {})
    for (cubin, target), read in zip(cubins, resources.disassemble_many(cubins, 1), strict=True):
        for name, lines in parts(cubin, tmp_path).items():
            found = [re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_]*)", line) for line in lines]
            assert read[name].opcodes == Counter(each[1] for each in found if each), (target, name)
            assert read[name].hot_loop or not name.startswith("contraction_"), (target, name)
            assert name != "contraction_mma" or read[name].hot_loop["HMMA"] >= 16, target


@needs_nvdisasm
@pytest.mark.parametrize("arch", ARCHS)
def test_control_bits_are_those_of_the_printed_encodings(arch, tmp_path):
    (cubin, target), *_ = compiled(arch)
    printed = parts(cubin, tmp_path, "-hex")
    (read,) = resources.instructions([cubin], target)
    assert sorted(read) == sorted(printed)
    for name, lines in printed.items():
        words = [int(line.split()[-2], 16) for line in lines if re.search(r"/\* 0x[0-9a-f]{16} \*/", line)]
        encoded = [upper << 64 | lower for lower, upper in zip(words[::2], words[1::2], strict=True)]
        assert [each.stall for each in read[name]] == [each >> 105 & 15 for each in encoded], name
        assert [each.waits for each in read[name]] == [each >> 116 & 63 for each in encoded], name
        signals = [7 if each.scoreboard is None else each.scoreboard for each in read[name]]
        assert signals == [each >> 110 & 7 for each in encoded] and set(signals) > {7}, name
        assert {each.stall for each in read[name]} - {0, 15}


@needs_nvdisasm
@pytest.mark.parametrize("arch", ARCHS)
def test_the_steady_path_of_real_loops(arch):
    for read in resources.disassemble_many(compiled(arch)):
        for name, each in read.items():
            hot, steady = each.hot_loop, each.steady
            assert bool(hot) == bool(steady.products), name
            assert steady.instructions <= sum(hot.values()) and steady.instructions <= steady.stalls, name
            assert all(hot[product.partition(".")[0]] >= count for product, count in steady.products.items()), name


def test_what_earlier_versions_wrote_as_json_is_read():
    made = Sass({"DMMA": 2}, {"DMMA": 2}, {"LDS": {8: 1}}, Steady(3, 9, {"DMMA.16x8x8": 2}), unguarded=1)
    told = json.loads(json.dumps(asdict(made)))
    assert Sass.from_json(told) == made
    del told["unguarded"]
    assert Sass.from_json(told) == replace(made, unguarded=0)


def test_branches_of_a_listing():
    lines = [
        "        /*0000*/              @!P0 BRA 0x30 ;",
        "        /*0010*/                   FFMA R1, R2, R3, R1 ;",
        "        /*0020*/               @P0 BRA P1, 0x10 ;",
        "        /*0030*/                   EXIT ;",
        "        /*0040*/                   DFMA R2, R4, R6, R2 ;",
        "        /*0050*/                   BRA.U !UP0, 0x0 ;",  # another function's
        "        /*0060*/                   BRA.U UP0, 0x40 ;",
        "        /*0070*/                   BRA 0x70;",
    ]
    listing = '\t.headerflags\t@"EF_CUDA_SM87"\n' + "\n".join(lines)
    codes = [words((1, 4, 5, 15)), words((4, 0, 7, 5))]
    first, second = map(summary, read_listing(listing, codes))
    assert first.hot_loop == {"BRA": 1, "FFMA": 1} and second.hot_loop == {"BRA": 2, "DFMA": 1}
    assert first.opcodes == {"BRA": 2, "EXIT": 1, "FFMA": 1}
    assert first.steady == Steady(2, 9, {"FFMA": 1}) and second.steady == Steady(3, 12, {"DFMA": 1})
    assert [each.stall for each in read_listing(listing, codes)[1]] == [4, 0, 7, 5]
    assert read_listing(listing, [codes[0], bytes(80)]) is None and read_listing("", [bytes(16)]) is None


def words(stalls) -> bytes:
    return b"".join((stall << 105).to_bytes(16, "little") for stall in stalls)

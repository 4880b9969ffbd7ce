"""The comparison of machine code: units, paths, figures of a real kernel, and what fails."""

from dataclasses import replace

import pytest

from benchmarks.sass import __main__ as command
from benchmarks.sass import acceptance, ours, paths, report, units
from benchmarks.sass.build import cached
from benchmarks.sass.figures import NoFiguresError, figures
from benchmarks.sass.workloads import cases
from gensor_kernels.build.instruction import Instruction
from gensor_kernels.build.resources import find_nvdisasm
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from tests.build.written import code

needs_nvdisasm = pytest.mark.skipif(find_nvdisasm() is None, reason="nvdisasm is not installed")


def test_depths_and_streams_of_workloads():
    found = {case.name: (case.depth, case.stream) for case in cases()}
    assert found["fp16_4096"] == (4096, "") and found["conv_3x3_256"] == (9 * 256, "")
    assert found["llm_16x4096x4096"] == (4096, "b") and found["llm_512x11008x4096"] == (4096, "")
    assert found["attention_causal"] == (4096, "") and found["attention_decoding"] == (4096, "all")
    assert found["softmax_4096"][1] == "all"
    with pytest.raises(ValueError, match="unknown workload fp5"):
        cases(["fp5"])


def test_clocks_of_products_and_bytes_that_are_read():
    a100, h100, geforce = lookup("sm_80"), lookup("sm_90"), lookup("sm_86")
    half, group = Instruction("", "HMMA.16816.F32"), Instruction("", "HGMMA.64x256x16.F32", "R24, gdesc[UR8], R24")
    assert units.work(half) == 16 * 8 * 16 and units.clocks(half, a100) == 8 and units.clocks(half, geforce) == 32
    assert units.clocks(group, h100) == 128  # of 64 x 256 x 16 on four schedulers of 512 each
    assert units.clocks(Instruction("", "HMMA.1688.F32.TF32"), a100) == 8
    assert units.clocks(Instruction("", "FFMA"), a100) == 2 and units.clocks(Instruction("", "DMMA.884"), a100) == 16
    assert units.kind_of(Instruction("", "QGMMA.64x128x32.F32.E4M3.E4M3")) == "f8"
    with pytest.raises(ValueError, match="sm_86 has no rate of DMMA"):
        units.clocks(Instruction("", "DMMA.884"), geforce)
    both = Instruction("", "HGMMA.64x256x16.F32", "R24, gdesc[UR8], R24")
    one = both._replace(operands="R24, R4, gdesc[UR8], R24")
    assert units.shared_read([both]) == (64 + 256) * 16 * 2 / 4 and units.shared_read([one]) == 256 * 16 * 2 / 4
    assert units.shared_read(code("LDSM.16.M88.4 R0", "LDS.64 R0", "LDG.E R0")) == 32 * (16 + 8)
    assert units.global_read(code("LDSM.16.M88.4 R0", "LDGSTS.E.BYPASS.128 R0", "LDG.E R0")) == 32 * (16 + 4)


EPILOGUE = (
    "head: HMMA.16816.F32 | 4",
    "@P0 BRA head | 5",
    "HMMA.16816.F32 | 9",  # the last step, after the loop
    "@P1 BRA partial | 5",
    "group: STS.64 | 2",
    "rows: LDS.128 | 3",
    "@P2 BRA narrow | 5",
    "STG.E.128 | 1",
    "BRA next | 5",
    "narrow: STG.E.U16 | 1",
    "next: @P3 BRA rows | 5",
    "@P4 BRA group | 5",
    "EXIT | 5",
    "partial: STG.E.128 | 1",  # float32 sums of a split: twice the bytes
    "STG.E.128 | 1",
    "STG.E.128 | 1",
    "STG.E.128 | 1",
    "EXIT | 5",
)


def test_of_loops_with_as_many_products_the_loop_with_the_fewest_stalls_is_read():
    cut = ("cut: HMMA | 4", "FSEL | 2", "FSEL | 2", "@P0 BRA cut | 5")
    whole = ("whole: HMMA | 4", "@P1 BRA whole | 5")
    fewer = ("outer: FADD | 1", "IMMA | 1", "@P2 BRA outer | 1")
    assert paths.common_loop(code(*cut, *whole, "EXIT")) == (4, 6)
    assert paths.common_loop(code(*whole, *cut, "EXIT")) == (0, 2)
    assert paths.common_loop(code(*fewer, cut[0], "HMMA | 4", *cut[1:], "EXIT")) == (3, 8)
    assert paths.common_loop(code("MOV | 1", "EXIT")) is None


def test_an_epilogue_stores_the_results_once_and_passes_its_loops_as_often_as_they_need():
    # One warp has 32 x 16 results of 2 bytes and sums of 4: two groups of 32 bytes per thread, two rows of 16 bytes.
    wanted = 32 * 32.0
    read = code(*EPILOGUE)
    stalls, count = paths.epilogue(read, wanted, 2 * wanted)
    groups, rows = 8, 2
    inner = rows * (3 + 5 + 1 + 5 + 5)
    assert stalls == 5 + groups * (2 + 5) + inner + 5
    assert count == 1 + groups * 2 + rows * 5 + 1
    assert paths.epilogue(code(*EPILOGUE[:7], *EPILOGUE[8:13]), 10 * wanted, wanted) is not None  # narrow, 160 times
    assert paths.epilogue(code("head: HMMA", "@P0 BRA head", "EXIT"), wanted, wanted) is None


def test_an_epilogue_ends_where_the_next_tile_begins():
    read = code("tile: MOV", "head: HMMA", "@P0 BRA head | 5", "STG.E.128 | 2", "@P1 BRA tile | 7", "EXIT | 5")
    assert paths.epilogue(read, 512, 1024) == (9, 2)
    assert paths.epilogue(read, 128, 256) == (9, 2)  # a quarter of the lanes store


#: Loops after the hot loop that are the epilogue's: code, where the products end, results and sums in bytes, cost.
AFTER = {
    "few multiply-adds": (
        [
            *("head: FFMA", *["FFMA"] * 40, "@P0 BRA head | 5", "rest: FFMA", "FFMA", "FFMA", "@P0 BRA rest | 5"),
            *("scale: FFMA | 2", "STG.E.128 | 2", "@P1 BRA scale | 5", "EXIT | 5"),
        ],
        *(46, 2 * 512, 4 * 512, (2 * 9 + 5, 2 * 3 + 1)),
    ),
    "an activation in float64, which reads no operands": (
        [
            *("head: LDS.128", *["DFMA"] * 40, "@P0 BRA head | 5", "rest: LDS.128", *["DFMA"] * 10, "@P0 BRA rest | 5"),
            *("row: @P1 BRA store | 5", *["DFMA | 3"] * 30, "@P2 BRA row | 5", "store: STG.E.128 | 2", "EXIT | 5"),
        ],
        *(54, 512, 512, (12, 3)),
    ),
    "a store that half of the lanes execute": (
        [*("head: HMMA", "@P0 BRA head | 5", "@P1 BRA idle | 5"), *("@P2 STG.E.128 | 2", "EXIT | 5", "idle: EXIT | 5")],
        *(2, 256, 256, (12, 3)),
    ),
}


@pytest.mark.parametrize("name", AFTER)
def test_loops_after_the_products_are_the_epilogues(name):
    lines, end, results, sums, cost = AFTER[name]
    assert paths.behind_products(code(*lines)) == end
    assert paths.epilogue(code(*lines), results, sums) == cost


def test_a_whole_kernel_goes_around_no_loop_over_its_row():
    read = code(
        "MOV | 1", "@P0 BRA behind | 5", "sum: LDG.E.128 | 4", "@P1 BRA sum | 5",
        "behind: LDG.E.128 | 4", "STG.E.128 | 2", "@P2 BRA behind | 5", "EXIT | 5",
    )  # fmt: skip
    stalls, count = paths.whole(read, 2 * 512, 2 * 512)
    assert stalls == 6 + 2 * 9 + 2 * 11 + 5 and count == 2 + 2 * 2 + 2 * 3 + 1


@pytest.fixture(scope="module")
def half():
    """Our float16 product of 128 x 128 x 32 with three stages, compiled for an A100."""
    (case,) = cases(["fp16_4096"])
    arch, family = lookup("sm_80"), FAMILIES["contraction_mma"]
    wanted = {"block_m": 128, "block_n": 128, "block_k": 32, "stages": 3, "warp_m": 64, "warp_n": 64, "split_k": 1}
    values = dict(family.starters(case.workload, arch)[0].values) | wanted | {"epilogue_fixed": 0}
    program = replace(family.starters(case.workload, arch)[0], values=tuple(values.items()))
    return case, arch, program


@needs_nvdisasm
def test_figures_of_a_product(half):
    case, arch, program = half
    build = ours.build_kernel(program, case.workload, arch)
    assert build.tile == (128, 128, 32) and build.threads == 128 and build.stages == 3
    found = figures(build, build.code(), arch, case.depth, case.stream)
    steps = found.products / (64 * 64 * 32 / (16 * 8 * 16))
    assert found.unit == "f16" and steps in (1, 2) and found.unit_clocks == 8 * found.products
    assert found.stalls_per_unit == pytest.approx(found.stalls / found.unit_clocks, abs=1e-3)
    assert found.stalls_per_unit > 0.9 and found.stack_bytes == 0
    assert found.chain == pytest.approx(found.warps_per_scheduler * found.unit_clocks / found.stalls, abs=1e-3)
    assert found.l2_bytes_per_clock == 32 and found.bytes_in_flight == 2 * 256 * 32 * 2 * found.blocks_per_sm
    assert 16 < found.epilogue_instructions < found.epilogue_stalls
    assert 0 < found.epilogue_shares["4096"] < found.epilogue_shares["1024"] < 0.5
    assert 0.9 * 1024 < found.rate <= 1024
    streaming = figures(build, build.code(), arch, case.depth, "b")
    assert streaming.unit == "dram" and streaming.instructions_per_element == pytest.approx(
        found.instructions / (steps * 128 * 32 / 128),
        rel=1e-2,  # elements of B that one of 128 threads copies
    )
    with pytest.raises(NoFiguresError, match="nvdisasm does not read"):
        figures(build, None, arch, case.depth, case.stream)
    with pytest.raises(NoFiguresError, match="no loop of products"):
        figures(build, (Instruction("", "EXIT"),), arch, case.depth, case.stream)


SUMS = (
    "tile: MOV | 1",
    "wait: SYNCS.PHASECHK | 1",
    "@P0 BRA wait | 5",
    "@P1 BRA store | 5",  # nothing to sum
    "LDTM.x32 | 3",
    "store: STS.128 | 2",
    "UTMASTG.2D | 1",
    "@P2 BRA tile | 7",
    "EXIT | 5",
    "step: UTCHMMA | 1",
    "@P3 BRA step | 5",
    "EXIT | 5",
    "slow: BRA wait | 5",  # from a slow path of another warp
)


def test_an_epilogue_of_sums_in_tensor_memory_is_a_turn_of_the_storing_warps():
    assert paths.epilogue(code(*SUMS), 512, 1024) == (1 + 5 + 5 + 3 + 2 + 1 + 7, 7)


@needs_nvdisasm
def test_figures_of_a_product_in_tensor_memory():
    (case,) = cases(["bf16_4096"])
    arch, family = lookup("sm_100"), FAMILIES["contraction_tcgen05"]
    program = family.starters(case.workload, arch)[0].replace(block_n=256, block_k=64, cluster=1, split_k=1, stages=5)
    build = ours.build_kernel(program, case.workload, arch)
    assert (build.consumers, build.storing, build.sums) == (32, 128, 2) and build.step_bytes == (128 + 128) * 64 * 2
    found = figures(build, build.code(), arch, case.depth, case.stream)
    # Four products of 128 x 256 x 16 on each multiprocessor, at 4,096 multiply-adds per clock.
    assert (found.unit, found.products, found.unit_clocks, found.sums) == ("f16", 4, 512, 2)
    assert found.chain == pytest.approx(512 / found.stalls, abs=1e-3) and 0.05 < found.stalls_per_unit < 0.5
    assert found.shared_bytes_per_clock == 2 * build.step_bytes / 512 and found.l2_bytes_per_clock == 64
    assert found.epilogue_stalls / 256 == pytest.approx(found.epilogue_per_result, abs=0.01)
    assert 256 < found.epilogue_instructions < found.epilogue_stalls
    assert found.epilogue_shares["4096"] == 0  # hidden by the next tile's products
    alone = figures(replace(build, sums=1), build.code(), arch, case.depth, case.stream)
    assert 0 < alone.epilogue_shares["4096"] < alone.epilogue_shares["1024"]


def test_figures_are_kept_and_a_damaged_file_is_made_again(tmp_path):
    assert cached(tmp_path, "key", lambda: "text") == "text" == cached(tmp_path, "key", lambda: "other")
    for file in tmp_path.glob("*.z"):
        file.write_bytes(b"damaged")
    assert cached(tmp_path, "key", lambda: "again") == "again"


@needs_nvdisasm
def test_the_command_prints_a_table_and_keeps_other_rows(half, tmp_path, monkeypatch, capsys):
    case, _, program = half
    monkeypatch.setattr(ours, "served_programs", lambda rows, arch: {case.name: program})
    file = tmp_path / "out" / "sass.json.gz"
    common = ["--arch", "sm_80", "--out", str(file), "--cache", str(tmp_path / "cache")]
    assert command.main(["--workload", case.name, *common]) == 0
    printed = capsys.readouterr().out
    assert "128x128x32 s3" in printed and "0 of 1 row not good enough" in printed
    assert command.main(["--workload", "softmax_4096", *common]) == 0  # we have no kernel, and there is no peer
    assert "(sm_80 softmax_4096)" in capsys.readouterr().out
    rows = report.load(file)["rows"]
    assert [(row["workload"], row["rows"]) for row in rows] == [(case.name, 4096), ("softmax_4096", 4096)]
    assert rows[0]["ours"]["products"] > 0 and rows[1]["refused"] == {"ours": "no stored kernel serves it"}
    peers = {"triton": [], "cutlass": [rows[0]["ours"] | {"maker": "cutlass", "epilogue_per_result": 0.1}]}
    report.save(file, [rows[0] | {"peers": peers}], {})
    assert command.main(["--workload", case.name, *common]) == 1
    (row,) = report.load(file)["rows"]
    assert row["peers"] == peers and row["failures"][0].startswith("epilogue stalls/result")
    file.write_bytes(file.read_bytes()[:50])
    assert report.load(file) == {}


LINE = {
    "maker": "ours", "configuration": "", "unit": "f16", "grouped": False, "stack_bytes": 0, "rate": 1000.0,
    "stalls_per_unit": 1.04, "chain": 1.9, "epilogue_per_result": 8.0, "instructions_per_element": None,
}  # fmt: skip


def fails(ours_line, workload="fp16_4096", arch="sm_80", **peers):
    given = {maker: [LINE | {"maker": maker} | each for each in lines] for maker, lines in peers.items()}
    return acceptance.failures(None if ours_line is None else LINE | ours_line, given, workload, arch)


ONE, FAST = {"stalls_per_unit": 1.0}, {"stalls_per_unit": 0.6}
LONG, STREAM = {"chain": 3.0}, {"unit": "dram", "stalls_per_unit": 0.6}
GROUP = {"grouped": True, "stalls_per_unit": 0.2, "rate": 1900.0}
#: Figures of ours, those of peers, and what fails.
COMPARED = [
    ({}, {"cutlass": [ONE]}, []),
    ({"stalls_per_unit": 1.06}, {"cutlass": [ONE]}, ["stalls/unit 1.06 > 1.05 x 1 (cutlass)"]),
    # Stalls below one per clock of the unit are no better.
    ({}, {"triton": [FAST]}, []),
    ({"stalls_per_unit": 1.06}, {"triton": [FAST]}, ["stalls/unit 1.06 > 1.05 x 0.6 (triton)"]),
    ({"unit": "dram"}, {"triton": [STREAM]}, ["stalls/unit 1.04 > 1.05 x 0.6 (triton)"]),
    # Epilogues are compared with CUTLASS's alone.
    (
        {"epilogue_per_result": 8.5},
        {"triton": [{"epilogue_per_result": 1.0}], "cutlass": [ONE]},
        ["epilogue stalls/result 8.5 > 8 (cutlass)"],
    ),
    ({"epilogue_per_result": None}, {"cutlass": [ONE]}, ["no path through our epilogue was found"]),
    ({"stack_bytes": 16}, {}, ["16 bytes of stack"]),
    ({"chain": 0.9}, {"triton": [LONG]}, ["chain 0.9 < 1 / 1.05 (triton)"]),
    ({"chain": 0.96}, {"triton": [LONG]}, []),
    ({"chain": 1.0}, {"triton": [{}]}, []),
    (None, {"triton": [{}]}, ["no kernel of ours"]),
    (None, {"triton": []}, []),
    # Products of warpgroups hide stalls below half.
    ({"grouped": True, "stalls_per_unit": 0.5}, {"triton": [GROUP | {"rate": 1000.0}]}, []),
    (
        {"grouped": True, "stalls_per_unit": 0.53},
        {"triton": [GROUP | {"rate": 1000.0}]},
        ["stalls/unit 0.53 > 1.05 x 0.2 (triton)"],
    ),
    # Another unit is compared by rate, unless a peer has ours as well.
    ({}, {"triton": [GROUP]}, ["rate 1000 < 1900 / 1.05 (triton, f16)"]),
    ({"rate": 1850.0}, {"triton": [GROUP]}, []),
    ({}, {"triton": [GROUP, {}]}, []),
]


@pytest.mark.parametrize(("mine", "peers", "failures"), COMPARED)
def test_a_row_fails_by_its_best_peer(mine, peers, failures):
    assert fails(mine, **peers) == failures


def test_attention_may_be_a_tenth_slower_and_softmax_is_compared_by_instructions():
    alike = {"grouped": True, "stalls_per_unit": 0.2}
    for mine, text in (({}, "rate 1700 < 1900 / 1.1 (triton, f16)"), (alike, "rate 1700 < 1900 / 1.1 (triton)")):
        assert fails(mine | {"rate": 1700.0}, "attention_causal", "sm_90", triton=[GROUP]) == [text]
        assert fails(mine | {"rate": 1750.0}, "attention_causal", "sm_90", triton=[GROUP]) == []
    row, better = ({"unit": "dram", "instructions_per_element": count} for count in (30.0, 19.0))
    assert fails(row, "softmax_4096", triton=[better]) == ["instructions/element 30 > 19 (triton)"]
    assert fails(better, "softmax_4096", triton=[row]) == []


def test_results_that_a_workload_does_not_have_are_not_counted():
    high = LINE | {"configuration": "64x128x64 s3 w2x2", "epilogue_per_result": 10.0}
    mine = LINE | {"configuration": "contraction_mma 16x48x64 s5", "epilogue_per_result": 17.0}
    assert acceptance.per_result(high, 16) == 40 and acceptance.per_result(mine, 16) == 17
    assert [acceptance.per_result(high, rows) for rows in (None, 64, 4096)] == [10, 10, 10]
    assert acceptance.per_result(high | {"epilogue_per_result": None}, 16) is None
    assert acceptance.failures(mine, {"cutlass": [high]}, "llm_16x4096x4096", "sm_80", 16) == []
    assert acceptance.failures(mine, {"cutlass": [high]}, "fp16_4096", "sm_80", 4096)
    rows = {case.name: case.rows for case in cases()}
    assert rows["llm_16x4096x4096"] == 16 and rows["attention_decoding"] == 1 and rows["fp16_4096"] == 4096
    assert rows["conv_3x3_256"] is None


def test_the_best_kernel_of_a_peer():
    rates = {"slow": (900.0, 0.9), "near": (995.0, 1.0), "top": (1000.0, 1.1), "spilling": (1020.0, 1.0)}
    lines = [
        LINE | {"configuration": name, "rate": rate, "stalls_per_unit": stalls, "stack_bytes": 8 * (rate > 1000)}
        for name, (rate, stalls) in rates.items()
    ]
    assert acceptance.best(lines)["configuration"] == "near" and acceptance.best([]) is None
    assert acceptance.best(lines[3:])["configuration"] == "spilling"
    other = LINE | {"configuration": "other", "unit": "tf32", "rate": 1.0}
    for mine, wanted in ((LINE | {"unit": "tf32"}, "other"), (None, "near"), (LINE | {"unit": "f64"}, "near")):
        assert acceptance.counterpart([*lines, other], mine)["configuration"] == wanted


def test_rows_of_an_earlier_run_are_replaced_in_the_order_of_the_workloads():
    new = [{"arch": arch, "workload": name} for arch in ("sm_90", "sm_80") for name in ("softmax_4096", "fp16_8192")]
    old = [{"arch": "sm_90", "workload": "fp16_8192", "old": True}, {"arch": "sm_75", "workload": "of another file"}]
    found = [(row["arch"], row["workload"], "old" in row) for row in report.merge(old, new)]
    assert found == [
        ("sm_80", "fp16_8192", False), ("sm_80", "softmax_4096", False), ("sm_90", "fp16_8192", False),
        ("sm_90", "softmax_4096", False), ("sm_75", "of another file", False),
    ]  # fmt: skip

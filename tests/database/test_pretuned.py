"""The shipped databases: small, verified, and rebuilt from their stored Programs to identical sources and cubins."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gensor_database.record import Binary, Kernel, Portfolio, Record, Timing, Verification
from gensor_database.store import Store
from gensor_database.timings import launched
from gensor_kernels.build.nvrtc import toolchain
from gensor_kernels.build.parallel import usable_cores
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.contraction.wgmma.store import COPIED
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.epilogue import GATES
from gensor_tuner.run.portfolios import PORTFOLIO
from gensor_tuner.shapes.reader import read_shapes
from gensor_tuner.store.check import check
from tests.campaign_size import sample

ROOT = Path(__file__).resolve().parents[2]
#: Kernels that are compiled again in a push.
FEW = 4
#: Families whose threads store less than 16 bytes.
FEW_RESULTS = ("gemv", "window_groups")
#: Families whose parts of a split leave in a few floats.
SPLIT = ("attention", "attention_tcgen05", "attention_wgmma", "rows", "window")
SHIPPED = sorted((ROOT / "database" / "pretuned").glob("*.db"))


@pytest.fixture(scope="module", params=sample(SHIPPED, 2), ids=lambda path: path.stem)
def store(request):
    with Store.open(request.param, readonly=True, immutable=True, trusted=True) as opened:
        yield opened


def test_every_record_has_a_verified_kernel(store):
    records = list(store.rows(Record))
    assert records and all(record.outcome == "ok" for record in records)
    digests = {record.kernel_digest for record in records} | {row.kernel_digest for row in store.rows(Portfolio)}
    digests |= {launched(row)[0] for row in store.rows(Timing)} - {None}  # a measured kernel serves its Workload
    stored = [store.kernel(digest) for digest in digests]
    assert all(each is not None and each.verified == "emulator" for each in stored)
    assert {kernel.digest for kernel in store.rows(Kernel)} == digests


def test_it_serves_every_common_shape_of_its_arch(store):
    keys, arch = {record.key for record in store.rows(Record)}, lookup(store.path.stem)
    rows = read_shapes(ROOT / "examples" / "common_shapes.csv")
    assert all(row.workload for row in rows)
    wanted = {row.workload.key() for row in rows if is_served(row.workload, arch)}
    assert len(wanted) >= 0.97 * len({row.workload for row in rows})
    assert wanted <= keys, sorted(wanted - keys)[:3]


def is_served(workload, arch):
    """Whether any family has kernels for it: before sm_80 none has attention of bfloat16, or int4 with it."""
    try:
        return bool(Space(workload, arch).families)
    except UnsupportedError:
        return False


def test_portfolios_hold_a_few_kernels_that_serve_any_epilogue(store):
    counts = Counter(row.class_key for row in store.rows(Portfolio))
    assert max(counts.values()) <= PORTFOLIO
    programs = [json.loads(store.get(Kernel, row.kernel_digest).program) for row in store.rows(Portfolio)]
    assert not any(program.get("epilogue_fixed") for program in programs)


def test_stored_programs_rebuild_to_identical_sources_and_cubins(store):
    kernels = list(store.rows(Kernel))
    # In a push a few hundred of the sources and a few cubins, nightly all of them.
    kernels = sample(kernels, 300)
    compiled = {kernel.digest for kernel in sample(kernels, FEW)}
    with ThreadPoolExecutor(usable_cores()) as threads:
        found = threads.map(lambda kernel: check(store, kernel, compiled=kernel.digest in compiled), kernels)
        problems = [each.reason for each in found]
    assert kernels and compiled
    # Others' cubins cannot be compared: a newer NVRTC in the extra needs new databases.
    assert {row.toolchain for row in store.rows(Binary)} == {toolchain()}
    wrong = {kernel.digest[:12]: text for kernel, text in zip(kernels, problems, strict=True) if text}
    assert not wrong, wrong


def test_aligned_half_kernels_spill_nothing_conflict_nowhere_and_move_16_bytes(store):
    kernels = aligned_half_kernels(store)
    assert len(kernels) >= 10
    for kernel, binary in kernels:
        operator, program = json.loads(kernel.class_key)["operator"], json.loads(kernel.program)
        faults = faults_of(store, kernel, binary)
        assert all(is_meant_fault(fault, operator, program) for fault in faults), kernel.program


def aligned_half_kernels(store):
    """Return the kernels of aligned float16 and bfloat16 classes, but for those with few results of a thread."""
    found = []
    for kernel in store.rows(Kernel):
        workload, binary = json.loads(kernel.class_key), store.binary(kernel)
        half = set(workload["dtypes"].values()) <= {"float16", "bfloat16"}
        if (
            binary is not None
            and half
            and set(workload["alignment"].values()) == {16}
            and kernel.family not in FEW_RESULTS
        ):
            found.append((kernel, binary))
    return found


def faults_of(store, kernel, binary):
    """Yield spills, bank conflicts, and copies and stores of fewer than 16 bytes; tensor copies count as wide."""
    program = json.loads(kernel.program)
    accesses = json.loads(binary.facts)[kernel.family]["accesses"]
    widths = {width for opcode in ("LDGSTS", "STG") for width in accesses.get(opcode, {})}
    widths -= {"8"} if program.get("stream") else set()  # flags of stream-K
    by_tensor = program.get("epilogue_staged") == COPIED and not widths
    if binary.spill_bytes:
        yield "spilling"
    if widths != {"16"} and not by_tensor:
        yield "narrow"
    counters = [json.loads(row.counters) for row in store.rows(Verification, kernel_digest=kernel.digest)]
    if any(each["counters"].get("bank_conflicts", 0) for each in counters):
        yield "conflicting"


def is_meant_fault(fault, operator, program):
    """Whether one of them is."""
    if program.get("staged"):  # rows of a multiple of 32 bytes, and results next to rows with gaps; both are counted
        return fault in ("conflicting", "narrow")
    if fault == "conflicting":  # of a type that the part has no tensor cores for: rows of 16-bit elements, not padded
        return program["family"] == "contraction_simt" and not program["pad"]
    split = max(program.get("split_k", 1), program.get("split", 1)) > 1
    if split and program["family"] in SPLIT:
        return fault == "narrow"
    if program["family"] == "rows" and program["vector"] * 2 < 16:  # few columns, so that threads take few of them
        return fault == "narrow"
    if program["family"] == "contraction_simt":  # a thread's results, half its columns after a gate, fill no 16 bytes
        return fault == "narrow" and program["thread_n"] // (2 if operator in GATES else 1) * 2 % 16 > 0
    # Results leave in pairs, straight from registers, where slabs were predicted to cost more.
    direct = program["family"] in ("contraction_mma", "attention") and not program["epilogue_staged"]
    return fault == "narrow" and direct

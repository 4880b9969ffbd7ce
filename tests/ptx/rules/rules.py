"""The rules that have a kernel, and how both twins of one are run by the emulator and by the executor of PTX."""

import functools
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gensor_kernels.devices.emulator import AddressSpace, KernelFault, build, run
from gensor_kernels.families.core import params
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.source import SOURCES, bind, flatten
from gensor_kernels.families.core.tensor_maps import TensorMap
from gensor_kernels.operators.types.geometry import Geometry, Strides
from tests.ptx.execute import Kernel, Memory, PtxFault

HERE = Path(__file__).resolve().parent
#: Bytes of a, of c, of the workspace and of shared memory (rules.cuh).
BYTES, SHARED = 8192, 32768
EXTENT = BYTES // 128  # rows and columns of a, b and c, of 16 bits
MAPS = tuple(TensorMap(operand, operand == "b", 2, EXTENT) for operand in "abc")
#: Deliveries of asynchronous copies and products, and orders of threads; a broken rule must show in one of them.
SCHEDULE = (("late", "forward"), ("early", "reverse"), ("late", 3))

#: Outcomes that are not faults: different results, or nothing visible (docs/internals/verification.md says why).
VALUES, UNSEEN = "results", "unseen"


@dataclass(frozen=True)
class Rule:
    """A rule with kernels `name`_wrong and `name`_right in a source, and what emulator and executor call the wrong."""

    name: str
    source: str
    emulator: str
    executor: str
    blocks: int = 1
    threads: int = 32
    front: bool = False  # a launch in front, on which this one depends
    wrong_threads: int = 0
    together: bool = True  # several blocks without maps are resident together; with maps they are a cluster

    def launches(self, twin: str) -> tuple[Launch, ...]:
        """Return the launches of a twin, "wrong" or "right"."""
        maps = () if self.source == "classic.cu" else MAPS
        threads = self.wrong_threads if self.wrong_threads and twin == "wrong" else self.threads
        together, cluster = self.together and self.blocks > 1 and not maps, self.blocks if maps else 1
        own = Launch(
            f"{self.name}_{twin}", self.blocks, threads, SHARED, maps, together=together, cluster=cluster,
            dependent=self.front,
        )  # fmt: skip
        return (Launch("in_front", 1, 32, SHARED), own) if self.front else (own,)


def _classic() -> Iterator[Rule]:
    here = functools.partial(Rule, source="classic.cu")
    yield here("global_alignment", emulator="misaligned", executor="misaligned")
    yield here("shared_alignment", emulator="misaligned", executor="misaligned")
    yield here("extent_of_an_operand", emulator="out_of_bounds", executor="out_of_bounds")
    yield here("operand_is_read_only", emulator="out_of_bounds", executor="out_of_bounds")
    yield here("extent_of_shared_memory", emulator="out_of_bounds", executor="out_of_bounds")
    yield here("written_before_it_is_read", emulator="uninitialised", executor="uninitialised")
    yield here("rows_of_ldmatrix", emulator="misaligned", executor="misaligned")
    yield here("aligned_ldmatrix", emulator="divergent|deadlock", executor="divergent")
    yield here("aligned_mma", emulator="divergent|deadlock", executor="divergent")
    yield here("members_of_a_shuffle", emulator="divergent", executor="divergent")
    yield here("lanes_that_a_shuffle_reads", emulator="divergent|deadlock", executor="invalid")
    yield here("aligned_barrier", emulator="divergent", executor="divergent")
    yield here("source_alignment_of_a_copy", emulator="misaligned", executor="misaligned")
    yield here("target_alignment_of_a_copy", emulator="misaligned", executor="misaligned")
    yield here("waits_for_a_copy", emulator="race", executor="race")
    yield here("groups_of_copies", emulator="race", executor="race")
    yield here("copies_of_a_group", emulator="race", executor="race")
    yield here("source_of_a_copy", emulator="race", executor="race")
    yield here("order_of_lanes", emulator="race|uninitialised", executor="race|uninitialised")
    yield here("order_of_warps", emulator="race|uninitialised", executor="race|uninitialised", threads=64)
    yield here("order_of_a_copy", emulator="race", executor="race", threads=64)
    yield here("release_of_a_flag", emulator="race|uninitialised", executor="race", blocks=2)
    yield here("flag_that_nobody_gives", emulator="deadlock", executor="deadlock")
    yield here("read_only_path", emulator="race", executor="noncoherent")
    yield here("waits_for_the_launch_in_front", emulator="race", executor="dependent", front=True)
    yield here("sectors_of_the_launch_in_front", emulator="race", executor=UNSEEN, front=True)


def _hopper() -> Iterator[Rule]:
    here = functools.partial(Rule, source="hopper.cu")
    yield here("count_of_an_mbarrier", emulator="invalid", executor="mbarrier")
    yield here("alignment_of_an_mbarrier", emulator="misaligned", executor="misaligned")
    yield here("one_life_of_an_mbarrier", emulator="invalid", executor="in_flight")
    yield here("mbarrier_that_was_initialised", emulator="invalid", executor="mbarrier")
    yield here("memory_of_an_mbarrier", emulator="invalid", executor="in_flight")
    yield here("wait_before_the_next_phase", emulator="invalid", executor="mbarrier")
    yield here("parity_of_a_phase", emulator="invalid", executor="mbarrier")
    yield here("bytes_of_a_phase", emulator="invalid", executor="transaction")
    yield here("bytes_that_nobody_brings", emulator="deadlock", executor="deadlock")
    yield here("bytes_of_all_copies", emulator="race", executor="in_flight|transaction")
    yield here("fence_behind_an_initialisation", emulator="race", executor="mbarrier")
    yield here("alignment_of_a_tile", emulator="misaligned", executor="misaligned")
    yield here("extent_of_a_tile", emulator="out_of_bounds", executor="out_of_bounds")
    yield here("tile_over_an_mbarrier", emulator="invalid", executor="in_flight")
    yield here("loads_behind_a_copy", emulator="race", executor="in_flight")
    yield here("copies_behind_loads", emulator="race", executor="race|in_flight")
    yield here("tile_of_two_copies", emulator="race", executor="in_flight")
    yield here("end_with_a_copy_on_its_way", emulator="race", executor="in_flight")
    yield here("fence_before_a_tensor_store", emulator="race", executor="unfenced")
    yield here("source_of_a_tensor_store", emulator="race", executor="in_flight")
    yield here("end_with_a_tensor_store_on_its_way", emulator="race", executor="in_flight")
    yield here("rows_of_stmatrix", emulator="misaligned", executor="misaligned")
    yield here("aligned_stmatrix", emulator="divergent|deadlock", executor="divergent")
    yield here("members_of_an_election", emulator="divergent", executor="divergent")
    yield here("one_value_of_a_warp", emulator="invalid", executor=VALUES)
    yield here("rank_in_a_cluster", emulator="invalid", executor="out_of_bounds", blocks=2)
    yield here("blocks_that_get_a_tile", emulator="invalid", executor="invalid", blocks=2)
    yield here("tile_for_no_block", emulator="invalid", executor="invalid", blocks=2)
    yield here("end_of_a_block_that_others_reach_for", emulator="race", executor="ended", blocks=2)
    yield here("what_a_relaxed_arrival_releases", emulator="race", executor="race|unordered", blocks=2)
    yield here("barrier_before_others_are_reached_for", emulator="race|invalid", executor="mbarrier", blocks=2)
    yield here("registers_of_setmaxnreg", emulator="invalid", executor="registers", threads=128)
    yield here("range_of_setmaxnreg", emulator="invalid", executor="registers", threads=128)
    yield here("registers_of_a_launch", emulator="invalid", executor=UNSEEN, threads=256)
    yield here("registers_that_nobody_gave", emulator="deadlock", executor="registers", threads=384)
    yield here("setmaxnreg_of_a_warpgroup", emulator="divergent", executor="registers", threads=128)


def _wgmma() -> Iterator[Rule]:
    here = functools.partial(Rule, source="wgmma.cu", threads=128)
    yield here("fence_before_products", emulator="race", executor="unfenced")
    yield here("sums_of_another_shape", emulator="race", executor="in_flight")
    yield here("waits_for_products", emulator="race", executor="in_flight")
    yield here("factors_of_a_product", emulator="race", executor=UNSEEN)
    yield here("groups_of_products", emulator="race", executor="in_flight")
    yield here("rows_of_a_matrix_descriptor", emulator="invalid", executor=VALUES)
    yield here("extent_of_a_matrix", emulator="out_of_bounds", executor="out_of_bounds")
    yield here("products_behind_copies", emulator="race", executor="in_flight")
    yield here("fence_before_a_product_reads", emulator="race", executor="unfenced")
    yield here("barrier_before_a_product_reads", emulator="race", executor="unordered|race")
    yield here("arrivals_before_a_product_reads", emulator="race", executor="unordered|race")
    yield here("copies_behind_stores", emulator="race", executor="unfenced")
    yield here("copies_behind_products", emulator="race", executor="in_flight")
    yield here("warps_of_a_warpgroup", emulator="divergent", executor="divergent")
    yield here("commits_of_a_warpgroup", emulator="divergent", executor="divergent")
    yield here("descriptors_of_a_warpgroup", emulator="divergent", executor="invalid")
    yield here("lanes_of_a_product", emulator="invalid", executor="invalid")
    yield here("four_warps_to_a_warpgroup", emulator="divergent", executor="divergent", wrong_threads=64)


def _tensor_memory() -> Iterator[Rule]:
    here = functools.partial(Rule, source="tensor_memory.cu", threads=128)
    yield here("columns_of_an_allocation", emulator="invalid", executor="tensor", threads=32)
    yield here("tensor_memory_of_a_multiprocessor", emulator="deadlock", executor="deadlock", threads=32)
    yield here("permit_to_allocate", emulator="invalid", executor="tensor", threads=32)
    yield here("columns_of_a_free", emulator="invalid", executor="tensor", threads=32)
    yield here("end_without_a_free", emulator="invalid", executor="tensor", threads=32)
    yield here("lanes_of_an_allocation", emulator="divergent|uninitialised", executor="uninitialised", threads=32)
    yield here("order_of_an_address", emulator="race|uninitialised", executor="race", threads=64)
    yield here("free_after_products", emulator="race", executor="in_flight")
    yield here("free_after_loads", emulator="race", executor="race")
    yield here("columns_of_a_product", emulator="out_of_bounds", executor="tensor")
    yield here("sums_of_nothing", emulator="uninitialised", executor="uninitialised")
    yield here("lane_of_a_product", emulator="invalid", executor="tensor")
    yield here("rows_of_an_instruction", emulator="invalid", executor="invalid")
    yield here("steps_of_columns", emulator="invalid", executor="uninitialised")
    yield here("type_of_an_instruction", emulator="invalid", executor=VALUES)
    yield here("sums_of_an_instruction", emulator="invalid", executor="invalid")
    yield here("kind_of_an_instruction", emulator="invalid", executor="invalid")
    yield here("reserved_bits_of_an_instruction", emulator="invalid", executor="invalid")
    yield here("version_of_a_descriptor", emulator="invalid", executor="invalid")
    yield here("swizzle_of_a_descriptor", emulator="invalid", executor="not_executed")
    yield here("rows_of_a_descriptor", emulator="invalid", executor=VALUES)
    yield here("extent_of_a_tile", emulator="out_of_bounds", executor="out_of_bounds")
    yield here("transposed_floats", emulator="invalid", executor="not_executed")
    yield here("products_after_copies", emulator="race", executor="in_flight")
    yield here("tiles_of_a_product", emulator="uninitialised", executor="uninitialised")
    yield here("stores_before_a_product", emulator="race", executor="unfenced")
    yield here("copies_after_products", emulator="race", executor="in_flight")
    yield here("wait_for_a_commit", emulator="race", executor="race")
    yield here("products_of_a_commit", emulator="race", executor="race")
    yield here("thread_of_a_commit", emulator="race", executor="race")
    yield here("mbarrier_of_a_commit", emulator="invalid", executor="mbarrier")
    yield here("end_with_a_commit_on_its_way", emulator="race", executor="in_flight")
    yield here("fence_after_a_commit", emulator="race", executor="race")
    yield here("fence_of_every_lane", emulator="race", executor="race")
    yield here("shape_of_products_in_order", emulator="race", executor="race")
    yield here("products_of_two_threads", emulator="race", executor="race")
    yield here("lanes_of_a_warp", emulator="out_of_bounds", executor="tensor")
    yield here("halves_of_lanes", emulator="out_of_bounds", executor="tensor")
    yield here("columns_of_a_load", emulator="out_of_bounds", executor="tensor")
    yield here("sums_that_nothing_wrote", emulator="uninitialised", executor="uninitialised")
    yield here("members_of_a_load", emulator="divergent|deadlock", executor="divergent")
    yield here("address_of_a_load", emulator="invalid", executor="invalid")
    yield here("wait_for_a_load", emulator=VALUES, executor="in_flight")
    yield here("registers_of_a_load", emulator="race", executor=VALUES)
    yield here("wait_before_an_arrival", emulator="race", executor="race")
    yield here("fence_before_an_arrival", emulator="race", executor="race")
    yield here("fence_of_every_lane_that_loads", emulator="race", executor="race")
    yield here("products_after_loads", emulator="race", executor="race")
    yield here("fence_before_a_product", emulator="race", executor="race")
    yield here("rows_of_a_pair", emulator="invalid", executor="uninitialised", blocks=2)
    yield here("columns_of_a_pair", emulator="invalid", executor=VALUES, blocks=2)
    yield here("issuer_of_a_pair", emulator="invalid", executor="uninitialised", blocks=2)
    yield here("blocks_of_an_allocation", emulator="deadlock|race", executor="deadlock", blocks=2, threads=32)
    yield here("one_allocation_of_a_pair", emulator="divergent", executor="tensor", blocks=2, threads=32)
    yield here("commit_of_both_blocks", emulator="race|uninitialised", executor="uninitialised", blocks=2)
    yield here("tiles_of_the_second_block", emulator="race", executor="race", blocks=2)
    yield here("tile_of_both_blocks", emulator="uninitialised", executor="uninitialised", blocks=2)
    yield here("one_group_of_a_kernel", emulator="invalid", executor="tensor", blocks=2)
    yield here("lanes_that_left_a_cluster", emulator="divergent", executor="divergent", blocks=2, threads=32)
    yield here("pair_without_a_cluster", emulator="invalid", executor="tensor", threads=32)


def _scales() -> Iterator[Rule]:
    here = functools.partial(Rule, source="tensor_scales.cu", threads=128)
    yield here("type_of_scales", emulator="invalid", executor="invalid")
    yield here("type_of_scaled_numbers", emulator="invalid", executor=VALUES)
    yield here("columns_of_scales", emulator="out_of_bounds|uninitialised", executor="tensor")
    yield here("sums_are_no_scales", emulator="invalid", executor=VALUES)
    yield here("byte_of_scales", emulator="invalid", executor="invalid")
    yield here("scales_that_nothing_copied", emulator="uninitialised", executor="uninitialised")
    yield here("columns_of_a_copy", emulator="out_of_bounds", executor="tensor")
    yield here("swizzle_of_scales", emulator="invalid", executor="not_executed")
    yield here("tile_of_scales", emulator="uninitialised|out_of_bounds", executor="uninitialised")
    yield here("scales_of_another_thread", emulator="race", executor="race")
    yield here("copies_after_scaled_products", emulator="race", executor="race")
    yield here("tiles_after_copies_of_scales", emulator="race", executor="in_flight")
    yield here("fence_after_stored_scales", emulator="race|uninitialised", executor="unfenced")
    yield here("barrier_after_stored_scales", emulator="race|uninitialised", executor="unordered|race|uninitialised")
    yield here("scope_of_an_arrival", emulator="race", executor="race", blocks=2)
    yield here("scope_of_a_wait", emulator="race", executor="race", blocks=2)


def _stores() -> Iterator[Rule]:
    here = functools.partial(Rule, source="tensor_stores.cu", threads=128)
    yield here("wait_for_stores", emulator="race", executor="race")
    yield here("fence_after_stores", emulator="race", executor="race")
    yield here("products_after_stores", emulator="race", executor="race")
    yield here("fence_before_a_held_product", emulator="race", executor="race")
    yield here("lanes_that_nothing_stored", emulator="uninitialised", executor="uninitialised")
    yield here("held_rows_across", emulator="invalid", executor="invalid")
    yield here("lanes_of_a_store", emulator="out_of_bounds", executor="tensor")
    yield here("columns_of_a_store", emulator="out_of_bounds", executor="tensor")
    yield here("end_with_a_store_on_its_way", emulator="race", executor="race|in_flight")
    yield here("stores_after_sums", emulator="race", executor="race")
    yield here("stores_after_held_rows_were_read", emulator="race", executor="race")
    yield here("loads_after_own_stores", emulator="race", executor="race")
    yield here("stores_after_own_loads", emulator="race", executor="race|in_flight")
    yield here("free_after_stores", emulator="race|out_of_bounds", executor="race")


RULES = (*_classic(), *_hopper(), *_wgmma(), *_tensor_memory(), *_scales(), *_stores())


@functools.cache
def source(name: str) -> str:
    """Return the text of a file of kernels with all that it includes."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        for each in (*HERE.glob("*.cuh"), HERE / name):
            shutil.copy(each, folder)
        return bind(flatten(name, Path(folder)), {})


@functools.cache
def _kernel(name: str) -> Kernel:
    return Kernel.of(source(name), "sm_100a" if name.startswith("tensor_") else "sm_90a")


class _Operands:
    """a, b, c and the workspace of a run, and Params with their addresses."""

    def __init__(self) -> None:
        numbers = np.random.default_rng(7).integers(-4, 5, BYTES // 2).astype(np.float16)
        self.a, self.b, self.c, self.workspace = (_aligned_bytes(BYTES) for _ in range(4))
        self.a[:] = self.b[:] = numbers.view(np.uint8)

    def packed(self, space: "AddressSpace | Memory") -> bytes:
        """Place the operands and return the Params of a launch."""
        arrays = (self.a, self.b, self.c, self.workspace)
        places = [space.place(each.ctypes.data, each.nbytes, i > 1) for i, each in enumerate(arrays)]
        rows, columns = Strides((0, 0, 0), EXTENT, 1), Strides((0, 0, 0), 1, EXTENT)
        geometry = Geometry((EXTENT,) * 3, a=rows, b=columns, c=rows)
        return params.pack(geometry, Tiling(1, 1, 1, EXTENT, 1), pointers=tuple(places))


def _aligned_bytes(size: int) -> np.ndarray:
    raw = np.zeros(size + 256, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start : start + size]


def emulated(rule: Rule, twin: str, copies: str, order: str | int) -> bytes:
    """Return what a twin leaves in c; KernelFault."""
    operands, space = _Operands(), AddressSpace()
    packed = operands.packed(space)
    run(build(source(rule.source)), rule.launches(twin), packed, space.buffers, order=order, copies=copies, seconds=20)
    return operands.c.tobytes()


def executed(rule: Rule, twin: str, copies: str, order: str | int) -> bytes:
    """Return what a twin's PTX leaves in c; PtxFault."""
    operands, memory = _Operands(), Memory()
    packed = operands.packed(memory)
    _kernel(rule.source).run(rule.launches(twin), packed, memory, late=copies == "late", order=order, ordered=True)
    return operands.c.tobytes()


def found(rule: Rule, twin: str, by: str) -> tuple[str, set[bytes]]:
    """Return kind and text of the first fault in the schedule, "" where there is none, and the results by then."""
    results = set()
    for copies, order in SCHEDULE:
        try:
            results.add((emulated if by == "emulator" else executed)(rule, twin, copies, order))
        except (KernelFault, PtxFault) as fault:
            return str(fault), results
    return "", results

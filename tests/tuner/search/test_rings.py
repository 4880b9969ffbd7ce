"""Rings: freshly walked kernels request tiles early enough, and of equal predictions the deepest ring is kept."""

import numpy as np
import pytest

from gensor_database import PRETUNED, Kernel, Record, Store
from gensor_kernels.families.contraction.wgmma import cluster, cost
from gensor_kernels.families.registry import program_from_json
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import SM_L2_BYTES
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from gensor_tuner.search.walk import walk
from gensor_tuner.strategies.request import Request, search
from tests.campaign_size import sample

from .synthetic import Spaces

H100 = lookup("h100-sxm")
FLOAT8 = {"dtype": "float8_e4m3fn", "out": "float16"}
WORKLOADS = {
    "float16 4096": matmul.workload(4096, 4096, 4096, trans_b=True),
    "float16 8192": matmul.workload(8192, 8192, 8192, trans_b=True),
    "float16 NN": matmul.workload(4096, 4096, 4096),
    "bfloat16 TT": matmul.workload(8192, 8192, 8192, dtype="bfloat16", trans_a=True, trans_b=True),
    "short k": matmul.workload(4096, 4096, 1024, dtype="bfloat16", trans_b=True),
    "float8 4096": matmul.workload(4096, 4096, 4096, trans_b=True, **FLOAT8),
    "float8 8192": matmul.workload(8192, 8192, 8192, trans_b=True, **FLOAT8),
    "float8 few rows": matmul.workload(64, 7168, 2048, trans_b=True, **FLOAT8),
    "int8": matmul.workload(4096, 4096, 4096, dtype="int8", out="int32", trans_b=True),
    "tf32": matmul.workload(4096, 4096, 4096, dtype="float32", math="tf32", trans_b=True),
    "projection": matmul.workload(512, 11008, 4096, trans_b=True),
    "batched": matmul.workload(512, 512, 512, batch=96, trans_b=True),
    "epilogue": matmul.workload(2048, 3072, 768, trans_b=True, epilogue="bias_gelu"),
}


def clocks(space, program):
    """(clocks of the products or bytes of a step, clocks from a free buffer to its next tile) by themselves."""
    v = program.by_name
    terms = space.explain(space.point(program))
    kind = cost.kind(space.workload)
    bytes_of = (v["block_m"] + v["block_n"]) * v["block_k"] * kind.element
    products = v["block_m"] * v["block_n"] * v["block_k"] / H100.rate(kind.rate)
    shared = v["block_m"] / cluster.pair(v, "n") + v["block_n"] / cluster.pair(v, "m")
    active = min(terms["blocks"], H100.sms)
    chip = shared * v["block_k"] * kind.element * active / H100.l2_bytes_per_clk
    transfer = max(bytes_of / SM_L2_BYTES, chip)
    return max(products, transfer) * terms["residents"], H100.l2_latency + cost.COPY_LATENCY + transfer


def deeper(family, program):
    """The points of a Program with more stages that are legal."""
    points = [family.point(program.replace(stages=each)) for each in cost.STAGES if each > program["stages"]]
    return [point for point in points if family.legal(point[None])[0]]


@pytest.mark.parametrize("name", sample(list(WORKLOADS), 2))
def test_no_ring_is_shallower_than_its_fill_where_a_deeper_one_fits(name):
    space = Space(WORKLOADS[name], H100)
    family = space.family("contraction_wgmma")
    found = walk(Spaces((family,)), chains=32, steps=150, keep=8, alike=family.family.main_loop)
    for program, seconds in found.best:
        step, fill = clocks(family, program)
        residents = family.explain(family.point(program))["residents"]
        for point in deeper(family, program):
            # A deeper ring may leave room for fewer blocks, which hide each other's latencies.
            assert family.potential(point[None])[0] > seconds
            assert family.explain(point)["residents"] < residents or (program["stages"] - 1) * step >= fill


def test_of_equal_predictions_the_deepest_ring_is_kept():
    space = Space(matmul.workload(2048, 2048, 2048, dtype="float16"), lookup("sm_80"))
    found = walk(space, chains=16, steps=80, keep=24, alike=lambda program: program)
    rings = 0
    for program, seconds in found.best:
        family = space.family(program.family)
        values = {c.name: c.values for c in family.coordinates}["stages"]
        for ring in values[values.index(program["stages"]) + 1 :]:
            point = family.point(program.replace(stages=ring))[None]
            rings += 1
            assert not family.legal(point)[0] or family.potential(point)[0] > seconds
    assert rings > 10


def test_a_tile_is_waited_for_in_a_shallow_ring():
    space = Space(matmul.workload(8192, 8192, 8192, dtype="bfloat16", trans_b=True), H100)
    family = space.family("contraction_wgmma")
    program = next(each for each in family.family.starters(space.workload, H100) if each["block_n"] == 256)
    program = program.replace(block_m=128, block_k=64, consumers=2, persistent=1, cluster=1)
    times = family.potential(np.array([family.point(program.replace(stages=each)) for each in (2, 3, 4)]))
    _, fill = clocks(family, program)
    steps = 16 * 128  # of the fullest block: 2,048 tiles on 132 multiprocessors
    least = steps * fill / H100.clock_ghz * 1e-9
    assert times[0] > 1.4 * times[1] and times[1] == times[2]
    assert least < times[0] < 1.4 * least


def test_a_slower_kernel_with_a_longer_ring_has_a_trail():
    """It may be among the best, whose actions are reported, though no action of the walk led to it."""
    sizes = {"n": 8, "h": 28, "w": 28, "c": 224, "k_out": 224, "groups": 28, "r": 3, "s": 3, "layout": "nchw"}
    pads = dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 1)
    found = search(Request(conv.workload(**sizes, **pads, dtype="float16"), lookup("sm_90"), 0, "full"))
    assert found.trails


def test_no_shipped_ring_is_shallower_than_its_fill_where_a_deeper_one_fits():
    with Store.open(PRETUNED / "sm_90.db", readonly=True, immutable=True, trusted=True) as store:
        kernels = {row.digest: row for row in store.rows(Kernel, family="contraction_wgmma")}
        records = [row for row in store.rows(Record) if row.kernel_digest in kernels]
    assert len(records) > 100
    shallow = []
    for record in records:
        program = program_from_json(kernels[record.kernel_digest].program)
        family = Space(Workload.from_json(record.key), H100).family(program.family)
        step, fill = clocks(family, program)
        terms = family.explain(family.point(program))
        fits = any(family.explain(each)["residents"] >= terms["residents"] for each in deeper(family, program))
        filled = (program["stages"] - 1) * step >= fill or terms["iterations"] <= program["stages"]
        if fits and not filled:
            shallow.append((record.key, program.to_json()))
    assert not shallow, shallow[:3]

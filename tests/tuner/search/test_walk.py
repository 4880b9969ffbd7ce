"""The walk: determinism, budget, replay, restarts from elites, both graphs, and its quality against brute force."""

from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.families.contraction.wgmma import cluster, cost
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace, Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import SM_L2_BYTES
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.windows import conv
from gensor_tuner.search.graph import Graph
from gensor_tuner.search.trace import Leg, Trail, expand, replay, route, start_of, visited
from gensor_tuner.search.walk import walk
from gensor_tuner.strategies.request import Request, search
from tests.campaign_size import sample

from .synthetic import Spaces, ToySpace


@pytest.fixture(scope="module")
def real():
    """A space that both families serve."""
    return Space(matmul.workload(500, 700, 900, dtype="float16", trans_b=True, epilogue="bias"), lookup("sm_87"))


@pytest.mark.parametrize("budget", [100, 400])
def test_deeper_rings_are_part_of_the_budget(real, budget):
    found = walk(real, budget=budget, keep=4, alike=lambda program: program)
    assert found.evaluations == budget
    for program, seconds in found.best:
        family = real.family(program.family)
        assert family.potential(family.point(program)[None])[0] == seconds


@pytest.mark.parametrize("graph", ["full", "paper"])
def test_trails_lead_to_their_programs_without_loops(real, graph):
    for seed in range(3):
        found = walk(real, seed=seed, chains=8, steps=60, graph=graph, keep=5, traced=3)
        assert len(found.trails) == 3
        for trail, (program, _) in zip(found.trails, found.best, strict=False):
            text = trail.to_json()
            assert replay(real, trail) == replay(real, text) == program
            assert Trail.from_json(text) == trail and len(text) < 2000 and trail.legs[0].seed == seed
            codes = [int(space.encode(point)) for space, _, point in visited(real, text)]
            assert len(set(codes)) == len(codes), "the path has a loop"


def test_nowhere_to_start_and_a_trail_of_what_is_not_there_are_errors(real):
    (trail,) = walk(real, chains=4, steps=30, start="random").trails
    (leg,) = trail.legs
    with pytest.raises(ValueError, match="no family 'rows'"):
        replay(real, replace(trail, family="rows"))
    with pytest.raises(ValueError, match="no action 'warp_q"):
        replay(real, trail.then(replace(leg, path="warp_q+")))
    with pytest.raises(ValueError, match="does not exist"):
        replay(real, trail.then(replace(leg, path="level+*3")))
    with pytest.raises(ValueError, match="no legal Program to start from"):
        walk(real, start=[])
    with pytest.raises(ValueError, match="graph must be one of"):
        walk(real, graph="tree")


def test_a_trail_goes_on_in_the_space_of_another_workload(real):
    other = Space(real.workload.with_sizes(m=40).with_epilogue(()), real.arch)
    first = walk(real, seed=1, chains=4, steps=40)
    again = walk(other, seed=2, chains=4, steps=40, start=[first.best[0][0]])
    (leg,) = again.trails[0].within(other.workload).legs
    trail = first.trails[0].within(real.workload).then(leg)
    assert replay(other, trail) == again.best[0][0]
    for space in (real, other):  # whichever of them the record is of
        text = trail.to_json(space.workload)
        assert text.count("sizes") == 1 and replay(space, text) == again.best[0][0]


def test_a_trail_may_lack_an_optional_last_coordinate():
    space = Space(matmul.workload(4, 512, 512, trans_b=True), lookup("sm_87"))
    (trail,) = walk(Spaces((space.family("gemv"),)), chains=4, steps=30).trails
    assert space.family("gemv").names[-1] == "early" and trail.start[-1] == 0
    older = replace(trail, start=trail.start[:-1])
    assert replay(space, older) == replay(space, trail)
    with pytest.raises(ValueError, match="zip"):
        replay(space, replace(trail, start=trail.start[:-2]))


def test_alike_programs_count_once(real):
    found = walk(real, chains=8, steps=60, keep=6, traced=6, alike=lambda program: program["block_m"])
    blocks = [program["block_m"] for program, _ in found.best]
    assert len(set(blocks)) == len(blocks) > 1
    assert [replay(real, trail) for trail in found.trails] == [program for program, _ in found.best]


def test_a_route_changes_one_coordinate_after_the_other(real):
    for program, _ in walk(real, chains=8, steps=60, keep=40).best:
        family = real.family(program.family)
        source = program.replace(vector_b=4, vector_c=4, min_blocks=0)
        if family.legal(family.point(source)[None])[0]:
            path = route(Graph(family), source, program)
            assert len(expand(path)) < 16
            assert replay(real, start_of(source, "full").then(Leg(0, path))) == program
    with pytest.raises(ValueError, match="no straight way"):
        route(Graph(family, "paper"), source, source.replace(vector_c=8))


def test_elites_never_lose_ground_and_feedback_moves_the_walk_away_from_spilling_programs(real):
    first = walk(real, seed=1, chains=4, steps=20, budget=400)
    start = [program for program, _ in first.best[:8]]
    again = walk(real, seed=1, chains=8, steps=50, start=start)
    assert again.best[0][1] <= first.best[0][1]
    (trail,) = again.trails
    axes = real.family(trail.family).coordinates
    assert dict(zip((c.name for c in axes), trail.start, strict=True)) in [program.by_name for program in start]
    space = Space(matmul.workload(2048, 2048, 2048, dtype="float16", trans_b=True), lookup("sm_87"))
    first = walk(space, chains=16, steps=100).best[0][0]
    family = space.family(first.family)
    family.add_feedback(first, registers=255, spill_bytes=4096)
    again = walk(space, chains=16, steps=100, start=[first])
    assert again.best[0][0] != first
    assert again.best[0][1] < family.potential(family.point(first)[None])[0]


def test_chains_walk_in_every_family_that_is_near():
    near, far = ToySpace(name="near", scale=2.0), ToySpace(name="far", scale=200.0)
    best = ToySpace(name="best")
    found = walk(Spaces((near, best, far)), chains=16, steps=100)
    assert found.trails[0].family == "best" and found.best[0][0].family == "best"
    assert len(np.concatenate(near.evaluated)) > 120
    assert len(np.concatenate(far.evaluated)) < 40


def test_paper_graph_starts_at_the_minimal_program_and_uses_only_its_actions(real):
    (trail,) = walk(real, graph="paper", chains=16, steps=100).trails
    family, tokens = real.family(trail.family), expand(trail.legs[0].path)
    assert trail.start == tuple(c.values[i] for c, i in zip(family.coordinates, family.start(), strict=True))
    kinds = {c.name: c.kind for c in family.coordinates}
    used = {token.rstrip("+-") for token in tokens}
    assert {kinds[name] for token in used for name in token.split("&")} <= {"tile", "cache", "vthread"}
    assert "level-" not in tokens and tokens.count("level+") == 2


@pytest.mark.parametrize("sizes", [(333, 777, 1111), (500, 700, 900)])
def test_the_graph_can_be_walked_from_its_root(sizes):
    """Chains that all construct from the minimal Program part ways: at the usual temperature all of them end in the
    same local optimum, of 333 x 777 x 1111 one that is 1.67 times as slow."""
    space = Space(matmul.workload(*sizes, dtype="float16", trans_b=True), lookup("sm_87"))
    usual, scratch = (walk(space, chains=48, steps=200, start=start, keep=1) for start in (None, "minimal"))
    assert scratch.trails[0].start[0] == 0
    assert scratch.best[0][1] <= 1.05 * usual.best[0][1]


#: A seed of the random lattice, a family, sizes, a type, an epilogue and an arch of each enumerated space.
ENUMERATED = [
    (0, "contraction_mma", (128, 768, 768), "bfloat16", "bias_relu", "sm_86"),
    (2, "contraction_mma", (16, 4096, 11008), "int8", "none", "sm_90"),
    (3, "contraction_mma", (333, 777, 1111), "float16", "gelu", "sm_75"),
    (1, "contraction_simt", (1, 4096, 4096), "float16", "none", "sm_80"),
    (1, "contraction_simt", (64, 64, 16384), "float64", "none", "sm_120"),
    (2, "contraction_simt", (2048, 1000, 512), "float32", "bias_relu", "sm_89"),
]


def random_lattice(family, workload, arch, rng):
    """Drop values of coordinates until at most a million points are left; the minimal Program stays."""
    kept = {c.name: list(c.values) for c in family.coordinates(workload, arch) if c.name != "level"}
    del kept.get("stream", [])[3:]
    names = list(kept)
    while np.prod([len(values) for values in kept.values()], dtype=object) > 1_000_000:
        room = np.array([len(kept[name]) - 1 for name in names], float)
        values = kept[names[rng.choice(len(names), p=room / room.sum())]]
        del values[rng.integers(1, len(values))]
    return {name: tuple(values) for name, values in kept.items()}


def test_walk_finds_the_optimum_of_enumerable_spaces():
    """A walk that may evaluate 5 % of a space ends within 2 % of its optimum, and nearer than random search."""
    regrets = []
    for seed, name, sizes, dtype, epilogue, arch in ENUMERATED:
        family, rng = FAMILIES[name], np.random.default_rng(seed)
        workload = matmul.workload(*sizes, dtype=dtype, epilogue=epilogue, trans_b=True)
        restrict = random_lattice(family, workload, lookup(arch), rng)
        space = FamilySpace(family, workload, lookup(arch), restrict=restrict)
        times = np.concatenate([space.potential(points) for points in space.enumerate()])
        assert len(times) >= 20_000
        found = walk(Spaces((space,)), seed=seed, start="random", budget=len(times) // 20)
        assert found.evaluations <= len(times) // 20
        drawn = [rng.choice(times, found.evaluations).min() for _ in range(20)]
        regrets.append((found.best[0][1] / times.min() - 1, np.mean(drawn) / times.min() - 1))
    walked, drawn = np.array(regrets).T
    assert (walked <= 0.02).all() and walked.mean() < drawn.mean()


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
    cool = replace(H100, sustained={})  # a clock that falls as products are busy would hide a part of the waits
    space = Space(matmul.workload(8192, 8192, 8192, dtype="bfloat16", trans_b=True), cool)
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

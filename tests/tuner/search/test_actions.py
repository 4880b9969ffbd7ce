"""Actions: every edge has its inverse, illegal targets are absent, and every legal Program can be reached."""

import numpy as np
import pytest

from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.search import actions
from gensor_tuner.search.graph import Graph

from .synthetic import COORDINATES, ToySpace


@pytest.fixture(scope="module")
def graph():
    return Graph(ToySpace())


def test_coordinates_that_no_action_moves_and_missing_edges_are_errors(graph):
    odd = (*COORDINATES, COORDINATES[1]._replace(name="odd", kind="odd"))
    with pytest.raises(ValueError, match="no action moves coordinates of kind 'odd'"):
        actions.moves(odd)
    with pytest.raises(ValueError, match="graph must be one of full, paper"):
        actions.moves(COORDINATES, "tree")
    start = graph.space.start()
    with pytest.raises(ValueError, match="does not exist"):
        graph.follow(start, "block_m-")
    with pytest.raises(ValueError, match="no action 'warp_q"):
        graph.follow(start, "warp_q+")
    assert graph.token(start, graph.follow(start, "block_n+")) == "block_n+"
    with pytest.raises(ValueError, match="no edge"):
        graph.token(start, start)


def check_reversible(graph, points):
    """Every edge leads to a legal point, from which the inverse action leads back."""
    targets, found = graph.neighbours(points)
    row, move = np.nonzero(found)
    assert graph.space.legal(targets[row, move]).all()
    number = {m.token: i for i, m in enumerate(graph.moves)}
    inverse = np.array([number[m.inverse] for m in graph.moves])[move]
    back, exists = graph.neighbours(targets[row, move])
    edge = np.arange(row.size)
    assert exists[edge, inverse].all()
    assert np.array_equal(back[edge, inverse], points[row])
    return targets, found


def test_an_absent_edge_has_nothing_legal_on_its_ray(graph):
    rng = np.random.default_rng(1)
    space, points = graph.space, graph.space.all_legal()
    for point in points[rng.choice(len(points), 200, replace=False)]:
        targets, found = graph.neighbours(point[None])
        for i, move in enumerate(graph.moves):
            if move.axis == 0 or move.carried >= 0:
                continue
            stop = len(COORDINATES[move.axis].values) if move.step > 0 else -1
            ray = np.repeat(point[None], abs(stop - point[move.axis]) - 1, axis=0)
            ray[:, move.axis] = np.arange(point[move.axis] + move.step, stop, move.step)
            legal = ray[space.legal(ray)] if len(ray) else ray
            assert found[0, i] == bool(len(legal))
            assert not len(legal) or np.array_equal(targets[0, i], legal[0])


def test_a_tile_carries_its_block_by_the_same_ratio(graph):
    space = graph.space
    values = {"level": 2, "block_m": 48, "block_n": 32, "thread_m": 4, "vthread_m": 1, "stages": 2, "split": 1}
    here = space.point(Program("toy", tuple(values.items())))
    there = space.program(graph.follow(here, "thread_m&block_m+"))
    assert (there["thread_m"], there["block_m"]) == (8, 96)
    with pytest.raises(ValueError, match="does not exist"):
        graph.follow(space.point(there), "thread_m&block_m+")
    tokens = {m.token: i for i, m in enumerate(graph.moves)}
    points = space.all_legal()
    targets, found = graph.neighbours(points)
    up = tokens["thread_m&block_m+"]
    before, after = space.columns(points[found[:, up]]), space.columns(targets[found[:, up], up])
    assert len(before["level"]) > 100
    assert (before["block_m"] * after["thread_m"] == after["block_m"] * before["thread_m"]).all()
    assert (after["thread_m"] > before["thread_m"]).all()


def test_a_ring_carries_its_step_by_the_product():
    problem = matmul.workload(4096, 4096, 4096, dtype="float16", trans_b=True)
    space = FamilySpace(FAMILIES["contraction_wgmma"], problem, lookup("sm_90"))
    graph = Graph(space)
    points = graph.scatter(2000, np.random.default_rng(0))
    targets, found = check_reversible(graph, points)
    up = next(i for i, m in enumerate(graph.moves) if m.token == "stages&block_k+")
    before, after = space.columns(points[found[:, up]]), space.columns(targets[found[:, up], up])
    assert len(before["level"]) > 100
    assert (before["stages"] * before["block_k"] == after["stages"] * after["block_k"]).all()
    assert (after["stages"] > before["stages"]).all()


def test_a_stream_opens_with_as_many_blocks_as_are_resident():
    problem = matmul.workload(512, 512, 512, dtype="float16")
    space = FamilySpace(FAMILIES["contraction_mma"], problem, lookup("a100-40gb"))
    graph = Graph(space)
    tokens = {m.token: i for i, m in enumerate(graph.moves)}
    names, top = [c.name for c in space.coordinates], space.coordinates[-1].values
    program = space.family.starters(space.workload, space.arch)[0].replace(min_blocks=1, stream=0, split_k=1)
    closed = space.point(program)
    assert space.program(graph.follow(closed, "stream-"))["stream"] == 108
    assert space.program(graph.follow(closed, "stream+"))["stream"] == min(value for value in top if value)
    opened = graph.follow(closed, "stream-")
    assert np.array_equal(graph.follow(opened, "stream+"), closed)
    # From every point with a stream or none, both directions lead back.
    points = graph.scatter(3000, np.random.default_rng(2))
    targets, found = check_reversible(graph, points)
    for way in (tokens["stream+"], tokens["stream-"]):
        assert len(np.unique(targets[found[:, way], way][:, names.index("stream")])) > 5


def test_cache_and_uncache_exist_exactly_where_they_undo_each_other(graph):
    points, space = graph.space.all_legal(), graph.space
    targets, found = graph.neighbours(points)
    down, up = graph.level_moves
    assert [graph.moves[i].action for i in (down, up)] == ["Cache", "Uncache"]
    home = (space.descend(space.ascend(points)) == points).all(axis=1)
    assert np.array_equal(found[:, up], home & (points[:, 0] > 0))
    assert np.array_equal(found[:, down], points[:, 0] < 2)
    assert 0 < found[:, up].sum() < len(points)
    assert np.array_equal(targets[found[:, down], down], space.descend(points[found[:, down]]))
    assert np.array_equal(targets[found[:, up], up], space.ascend(points[found[:, up]]))

    for i, move in enumerate(graph.moves):
        level = COORDINATES[move.axis].level
        assert not found[points[:, 0] < level, i].any()
        assert found[:, i].any()


def test_everything_is_reachable_and_the_inverse_leads_home(graph):
    points = graph.space.all_legal()[::4]
    targets, found = check_reversible(graph, points)
    assert np.array_equal(targets[~found], np.repeat(points, (~found).sum(axis=1), axis=0))
    everything = np.sort(graph.encode(graph.space.all_legal()))
    assert np.array_equal(graph.reachable(graph.space.start()[None], chunk=512), everything)
    somewhere = graph.decode(everything[[everything.size // 2]])
    assert np.array_equal(graph.reachable(somewhere), everything)


@pytest.mark.parametrize(
    ("name", "arch", "dtype"),
    [
        ("contraction_mma", "sm_87", "float16"),
        ("contraction_mma", "sm_75", "float16"),
        ("contraction_simt", "sm_87", "float32"),
        ("contraction_simt", "sm_75", "float64"),
    ],
)
def test_every_edge_of_a_family_is_reversible(name, arch, dtype):
    """tests/families/test_space.py has the reachability of their enumerated lattices."""
    workload = matmul.workload(300, 300, 300, dtype=dtype, trans_b=True, epilogue="bias_relu")
    graph = Graph(FamilySpace(FAMILIES[name], workload, lookup(arch)))
    check_reversible(graph, graph.scatter(400, np.random.default_rng(0)))

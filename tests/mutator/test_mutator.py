"""The mutator's own parts, and its mutants of barriers and waits, on a few Programs per family and hardware generation.

The whole sweep, guards included, is `python -m tests.mutator`.
"""

import pytest

from gensor_kernels.families.core.source import flatten
from gensor_kernels.families.registry import FAMILIES
from tests.campaign_size import sample

from .engine import mutations, sweep
from .engine.sweep import EQUIVALENT, is_equivalent
from .programs import Configuration, configurations

TEXT = """#line 7 "a.cu"
DEVICE bool inside(int i) { return within(i * (2, 3), bound<int>(4)); } // within(1, 2)
    copy_async_wait<STAGES - 2>();
#line 1 "intrinsics.cuh"
void barrier();
#line 3 "b.cuh"
    barrier(), f(minimum(params.k, f(1, 2)), minimum(1, 2));
    barrier();
"""


WGMMA = ("wgmma", "aligned", "packed_wgmma", "floats_wgmma", "prepared_wgmma")
#: Calls of kernels for Hopper that attention has no need for: clusters, images, stores by copies.
OTHERS = {"mbarrier_arrive_at", "cluster_barrier", "cluster_begin", "copy_pixels", "store_matrix"}
OTHERS |= {"store_tensor", "store_tensor_commit", "store_tensor_wait"}
ATTENTION = {"barrier", "warp_barrier", *mutations.HOPPER, *mutations.PLACES} - OTHERS
ALL, FLAGS, DEPENDENT = set(mutations.ORDERING), set(mutations.FLAGS), set(mutations.DEPENDENT)


def test_sites_are_calls_in_kernels_with_file_and_line():
    found = mutations.sites(TEXT)
    assert [(site.line, site.name) for site in found] == [
        (7, "a.cu within(i * (2, 3), bound<int>(4))"),
        (8, "a.cu copy_async_wait<STAGES - 2>()"),
        (3, "b.cuh barrier()"),
        (3, "b.cuh minimum(params.k, f(1, 2))"),
        (4, "b.cuh barrier() #2"),
    ]
    assert all(TEXT[site.begin : site.end] == site.code for site in found)


def test_mutants_change_exactly_their_site():
    guard, wait, barrier, bound, _ = mutations.sites(TEXT)
    assert [mutant.code for mutant in mutations.mutants(guard)] == [
        "true",
        "within(i * (2, 3), (bound<int>(4)) + 1)",
        "within(i * (2, 3), (bound<int>(4)) - 1)",
    ]
    assert [mutant.code for mutant in mutations.mutants(wait)] == ["(void)0", "copy_async_wait<(STAGES - 2) + 1>()"]
    assert mutations.mutants(barrier)[0].apply(TEXT) == TEXT.replace("barrier(),", "(void)0,")
    assert len(mutations.mutants(bound)) == 4


def test_the_kernels_have_the_sites_the_mutator_knows():
    hopper = {"barrier", "warp_barrier", *mutations.HOPPER, *mutations.PLACES} | FLAGS
    known = {
        **dict.fromkeys(("contraction_mma", "contraction_packed", "contraction_patch"), ALL | FLAGS),
        **dict.fromkeys(("contraction_phased_mma", "contraction_sliced", "attention"), ALL),
        "contraction_strip": ALL - {"warp_barrier"},
        **dict.fromkeys((f"contraction_{name}" for name in WGMMA), hopper),
        **{name: {"barrier"} for name in ("contraction_phased", "gemv", "rows")},
        "recurrent": {"barrier"},
        "recurrent_slices": {"barrier"} | FLAGS,
        "contraction_simt": {"barrier", "warp_barrier"} | FLAGS,
        "attention_wgmma": ATTENTION,
        "attention_tcgen05": {each for each in ATTENTION if not each.startswith("wgmma")},
        "contraction_weights_wgmma": ATTENTION - {"proxy_fence"},
    }
    for family, orderings in known.items():
        is_one = family.startswith("recurrent")  # launch, which no other one follows, without ragged parts
        orderings = orderings | (set() if is_one else DEPENDENT)  # at least in the launch that finishes a split
        found = mutations.sites(flatten(f"{family}.cu"))
        assert {site.function for site in found if not site.is_guard} == orderings
        assert {site.function for site in found if site.is_guard} == ({"within"} if is_one else set(mutations.BOUNDS))


def test_every_proof_belongs_to_a_mutant():
    every = [site for family in FAMILIES.values() for site in mutations.sites(family.text)]
    names = {mutant.name for site in every for mutant in mutations.mutants(site)}
    groups = {configuration.group for configuration in configurations()}
    for proven in EQUIVALENT:
        group, _, mutant = proven.partition(": ")
        assert mutant in names and group in groups if group in groups else proven in names


def named(group: str, name: str) -> Configuration:
    return next(each for each in configurations() if (each.group, each.name) == (group, name))


GROUPS = [
    ("simt", ("one buffer, split", "staged, wide", "norm, whole rows", "staged, stream")),
    ("mma cp.async", ("narrow", "wide", "tall", "norm, whole rows", "floats", "stream")),
    ("mma registers", ("wide", "tall", "norm, whole rows", "floats", "stream")),
    ("packed", ("packed stream", "packed tall")),
    ("phased", ("phased phases, filters last",)),
    ("phased_mma", ("phased_mma phases, filters last", "phased_mma phases, floats")),
    ("patch", ("patch stream", "patch known taps")),
    ("strip", ("strip last", "strip first, single outputs")),
    ("recurrent", ("lstm, held", "gru")),
    ("recurrent_slices", ("lstm, held", "rounded")),
    ("rows", ("sum, one row", "columns, two passes")),
    ("gemv", ("rows, wide", "columns, rounds")),
    ("wgmma", ("k-contiguous", "n-contiguous", "m-contiguous, split", "8-bit floats", "in turns", "pixels", "gate",
               "pair along m", "pair along n, walking", "pixels of pairs", "stored by copies", "stream")),
    ("weights_wgmma", ("a scale per column", "two warpgroups", "groups, split")),
    ("attention cp.async", ("narrow", "split", "boolean mask", "window, soft cap")),
    ("attention registers", ("wide", "boolean mask", "window")),
    ("attention_wgmma", ("two warpgroups", "three warpgroups", "split", "boolean mask", "copied mask", "window",
                         "ragged")),
    ("tcgen05", ("k-contiguous", "n-contiguous", "m-contiguous, split", "pair", "pair, n-contiguous",
                 "stored by copies", "stored by copies, a rest", "scales of blocks, split", "gate", "normalised",
                 "pixels", "mxfp8", "mxfp8 of a pair")),
    ("attention_tcgen05", ("two warpgroups", "causal, split", "window, soft cap", "ragged groups")),
    ("window", ("channels, shared", "planes, shared", "staged, idle copiers", "sliding")),
    ("window_groups", ("channels", "planes, any")),
]  # fmt: skip
#: A Program and a call in it, of each kind of synchronisation.
KINDS = [
    ("simt", "one buffer, split", "barrier"),
    ("mma cp.async", "narrow", "warp_barrier"),
    ("mma cp.async", "narrow", "copy_async_wait"),
    ("mma cp.async", "stream", "give_flag"),
    ("wgmma", "k-contiguous", "mbarrier_wait"),
    ("wgmma", "k-contiguous", "wgmma_wait"),
    ("wgmma", "pair along m", "cluster_barrier"),
    ("wgmma", "stored by copies", "store_tensor_wait"),
]


@pytest.mark.parametrize(("group", "name", "function"), KINDS)
def test_a_missing_call_of_each_kind_is_caught(group, name, function):
    _, work = sweep.plan([named(group, name)])
    missing = [each for each in work if each[1].site.function == function and not is_equivalent(group, each[1].name)]
    [result] = sweep.run(missing[:1], jobs=1)
    assert result.caught_by


@pytest.mark.parametrize(("group", "names"), sample(GROUPS, 1))
def test_missing_barriers_and_waits_of_a_drawn_family_are_caught(group, names):
    programs = [named(group, name) for name in names]
    _, work = sweep.plan(programs[:1])
    orderings = [(group, mutant, programs) for group, mutant, _ in work if not mutant.site.is_guard]
    survivors = [each for each in sweep.run(sample(orderings, 3), jobs=1) if not each.caught_by]
    assert all(is_equivalent(each.group, each.mutant) for each in survivors)


@pytest.mark.nightly
@pytest.mark.parametrize(("group", "names"), GROUPS)
def test_every_missing_barrier_and_wait_is_caught(group, names):
    dead, work = sweep.plan([named(group, name) for name in names])
    # Programs without a split have waits that wait for nothing: test_dependent has a mutant of every wait.
    missed = [site for site in dead[group] if not site.is_guard and site.function not in DEPENDENT]
    # Outputs are converted before the slab in contraction_mma, contraction_packed and products of warpgroups, the
    # latter one row of fragments at a time: phases store sums, and the others stage sums.
    converted = [site for site in missed if (site.file, site.function) == ("warp_outputs.cuh", "warp_barrier")]
    staging = ("phased_mma", "patch", "weights_wgmma")
    assert len(converted) == (2 if group in staging else 1 if group in ("wgmma", "tcgen05") else 0)
    # A barrier that paces the loads of a stream's sums orders nothing; few sums of a thread have none.
    paced = [site for site in missed if (site.file, site.function) == ("stream_k.cuh", "warp_barrier")]
    unreached = [(site.function, site.code) for site in missed if site not in [*converted, *paced]]
    if "registers" in group:
        assert {function for function, _ in unreached} == {"copy_async_commit", "copy_async_wait"}
    elif group == "packed":  # no norm, no parts of floats: their barriers are reached in other groups
        assert {function for function, _ in unreached} == {"barrier"} and len(unreached) == 1
    elif group == "phased":  # outputs pass through no shared memory: the barrier of slabs is reached in other groups
        assert unreached == [("barrier", "barrier()")]
    elif group == "wgmma":  # streams of whole blocks: warps pass their own sums on
        assert {function for function, _ in unreached} == {"barrier", *mutations.FLAGS} and len(unreached) == 4
    elif group == "tcgen05":  # blocks walk over tiles of their own: no streams, no copies for both blocks of a pair
        shared = {"copy_tensor", "copy_pixels", "cluster_barrier", "barrier", *mutations.FLAGS}
        assert {function for function, _ in unreached} == shared and len(unreached) == 9
    else:
        assert unreached == []
    orderings = [each for each in work if not each[1].site.is_guard]
    survivors = [each for each in sweep.run(orderings, jobs=2) if not each.caught_by]
    assert all(is_equivalent(each.group, each.mutant) for each in survivors)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("conv last", "within((u32)(h[e] + down), (u32)window.extent[0])"),
        ("conv transposed first", "within(column, (u32)window.extent[1])"),
        ("one buffer, split", "within(at, k_end)"),
    ],
)
def test_guards_off_by_one_are_caught_and_an_equivalent_mutant_is_not(name, code):
    configuration = named("simt", name)
    _, work = sweep.plan([configuration])
    chosen = [each for each in work if each[1].site.code == code]
    assert len(chosen) == 3
    assert all(result.caught_by for result in sweep.run(chosen, jobs=2))
    assert configuration.verify(lambda text: text + "\n").outcome == "ok"

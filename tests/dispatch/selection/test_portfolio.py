"""Tier 3: kernels of portfolios serve sizes that were not tuned, other kernels only if no portfolio can."""

from dataclasses import replace

import pytest

from gensor_database import Catalog, Store, Verification, export, merge
from gensor_kernels.dispatch.selection import library, load, predict, tiers
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from tests.doubles.kernels import ARCH, starters, workload
from tests.doubles.stored import rows

from .test_tiers import request

AGX = lookup("agx-orin-64gb")

pytestmark = pytest.mark.usefixtures("no_databases")


def library_of(kernels, portfolio):
    """A library of these kernels, of which `portfolio` is one."""
    return library.Library(library.Contents({k.digest: k for k in kernels}, {}, {}, set(portfolio)))


def fastest_first(kernels, wanted):
    seconds = dict(zip((k.digest for k in kernels), predict.predict(kernels, wanted, ARCH), strict=True))
    return sorted(kernels, key=lambda kernel: (seconds[kernel.digest], kernel.digest))


def choose(shelf, wanted, **keywords):
    return tiers.choose(request(wanted, **{"one_call": False, **keywords}), shelf)


def test_a_portfolio_kernel_comes_before_any_other():
    wanted = workload()
    ranked = fastest_first(list(starters(wanted)), wanted)
    chosen = [kernel.digest for kernel in ranked[1:4]]
    choice = choose(library_of(ranked, chosen), wanted)
    assert (choice.tier, choice.kernel.digest) == (3, chosen[0])
    assert choice.reason == "best of 3 portfolio kernels, by predicted time"


def test_a_portfolio_that_cannot_serve_the_call_is_passed_over():
    wanted, fused = workload(), workload(epilogue="bias_relu")
    ranked = fastest_first(list(starters(wanted)), wanted)
    fixed = library.generate(ranked[-1].program.replace(epilogue_fixed=1), fused, ARCH)
    shelf = library_of([*ranked, fixed], [fixed.digest])
    assert choose(shelf, fused).kernel.digest == fixed.digest
    assert choose(shelf, workload(epilogue="bias")).kernel.digest != fixed.digest
    # More splits than there are steps of k: not legal for this shape.
    deep = library.generate(ranked[0].program.replace(split_k=32), wanted, ARCH)
    short = wanted.with_sizes(k=64)
    choice = choose(library_of([*ranked, deep], [deep.digest]), short)
    assert choice.kernel.digest == fastest_first(ranked, short)[0].digest and "none of the portfolio" in choice.reason


def test_inside_graph_capture_the_portfolio_must_be_loaded():
    wanted = workload()
    ranked = fastest_first(list(starters(wanted)), wanted)
    chosen, loaded = ranked[1].digest, ranked[2].digest
    shelf = library_of(ranked, [chosen])
    choice = choose(shelf, wanted, captured=True, loaded=[loaded])
    assert choice.kernel.digest == loaded and "best of 1 stored kernels" in choice.reason
    assert choose(shelf, wanted, captured=True, loaded=[chosen, loaded]).kernel.digest == chosen


def test_portfolios_of_all_fitting_classes_count():
    wanted, narrow = workload(), workload(510, 510, 510)
    wide, lesser = list(starters(wanted)), list(starters(narrow))
    best, least = fastest_first(wide, wanted)[0].digest, fastest_first(lesser, wanted)[0].digest
    both = choose(library_of([*wide, *lesser], [wide[0].digest, lesser[0].digest]), wanted)
    assert both.reason == "best of 2 portfolio kernels, by predicted time"
    # Classes by themselves: without a portfolio for the better class, its kernels still take part.
    mixed = choose(library_of([*wide, *lesser], [least]), wanted)
    assert mixed.kernel.digest == best
    assert f"best of {len(wide) + 1} stored kernels that fit (1 of a portfolio), by" in mixed.reason
    assert choose(library_of([*wide, *lesser], [least]), narrow).kernel.digest == least


# ---- through the databases


def fill(path, wanted, programs, portfolio=(), part=ARCH.part):
    """Stores kernels of these Programs, and the places in `portfolio` as the class's; their digests."""
    with Store.open(path) as store:
        digests = []
        for program in programs:
            found = rows(program, wanted)
            store.add(*found)
            digests.append(found[2].digest)
        if portfolio:
            store.replace_portfolio(ARCH.name, part, wanted.class_key(), [digests[i] for i in portfolio])
    return digests


def contents(*paths, arch=ARCH):
    stores = [Store.open(path) for path in paths]
    try:
        return load.contents(Catalog(stores, arch.name), arch)
    finally:
        for store in stores:
            store.close()


def programs_for(wanted):
    return [kernel.program for kernel in starters(wanted)]


def test_portfolios_of_all_layers_are_joined(tmp_path):
    user, site, packaged = (tmp_path / f"{name}.db" for name in ("user", "site", "packaged"))
    one, two = workload(), workload(dtype="float16")
    digests = fill(packaged, one, programs_for(one), [0, 1])
    assert contents(packaged).portfolio == set(digests[:2])
    others = fill(site, two, programs_for(two), [0])
    assert contents(site, packaged).portfolio == {*digests[:2], others[0]}
    fill(user, one, programs_for(one), [3])
    assert contents(user, site, packaged).portfolio == {*digests[:2], digests[3], others[0]}
    with Store.open(user) as store:  # refuted anywhere, it counts nowhere
        store.add(Verification(digests[0], "device", "wrong"))
    assert contents(user, site, packaged).portfolio == {digests[1], digests[3], others[0]}


def test_portfolios_of_other_parts_serve_where_this_part_has_none(tmp_path):
    user, packaged = tmp_path / "user.db", tmp_path / "packaged.db"
    wanted = workload()
    digests = fill(packaged, wanted, programs_for(wanted), [0])
    assert contents(packaged, arch=AGX).portfolio == {digests[0]}
    fill(user, wanted, programs_for(wanted), [1], part="orin-nx-16gb")
    assert contents(user, packaged, arch=AGX).portfolio == set(digests[:2])
    fill(packaged, wanted, programs_for(wanted), [2], part=AGX.part)
    assert contents(user, packaged, arch=AGX).portfolio == {digests[2]}
    assert contents(user, packaged).portfolio == {digests[0]}


def test_merge_and_export_keep_portfolios_apart_by_part(tmp_path):
    board, desk, shipped = (tmp_path / f"{name}.db" for name in ("board", "desk", "shipped"))
    wanted = workload()
    digests = fill(desk, wanted, programs_for(wanted), [0])
    fill(board, wanted, programs_for(wanted), [1], part=AGX.part)
    fill(board, wanted, programs_for(wanted), [2])
    with Store.open(desk) as store, Store.open(board, readonly=True, trusted=True) as other:
        merge(store, other)
        export(store, shipped, ARCH.name)
    for path in (desk, shipped):
        assert contents(path).portfolio == {digests[0], digests[2]}  # one part's are joined
        assert contents(path, arch=AGX).portfolio == {digests[1]}


def test_a_kernel_for_any_strides_has_the_shared_memory_of_its_own_tiles():
    """Columns of A that are padded in shared memory stay padded if A has unit strides along m."""
    wanted = replace(workload(m=16, n=512, k=32), layout=(("a", "m"), ("b", "k"), ("c", "n")))
    strided = replace(wanted, layout=(("a", "s"), ("b", "s"), ("c", "n")), alignment=(("a", 4), ("b", 4), ("c", 16)))
    seen = set()
    for kernel in starters(strided):
        for pad in {0, dict(kernel.program.values).get("pad", 0), int("pad" in dict(kernel.program.values))}:
            program = kernel.program.replace(pad=pad) if pad else kernel.program
            family, made = FAMILIES[program.family], library.generate(program, strided, ARCH)
            own = [each.shared_bytes for each in family.launches(program, strided)]
            assert made.fits(wanted) and [each.shared_bytes for each in made.launches(wanted)] == own
            seen.add([each.shared_bytes for each in family.launches(program, wanted)] == own)
    assert seen == {True, False}, "of the two layouts, some tiles take different memory"

"""Which kernel serves a call: records, timings, portfolios, and what only the array library may do."""

from dataclasses import replace

import numpy as np
import pytest

from gensor_database import Catalog, Record, Store, Timing, Verification, duration, export, merge
from gensor_kernels.dispatch.calls import problem
from gensor_kernels.dispatch.selection import library, load, predict, tiers
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.geometry import Geometry
from tests.doubles.kernels import ARCH, starters, workload
from tests.doubles.stored import rows


def request(wanted, **keywords):
    made = problem.Problem(wanted, Geometry((1, 1, 1)), ())
    return tiers.Request(made, ARCH, **{"emulated": False, "one_call": True, **keywords})


def timing(wanted, median, digest=None):
    return Timing(wanted.key(), ARCH.name, ARCH.part, digest, None if digest else "cupy.matmul", median)


def stock(wanted, record=False, times=(), vendor=None):
    """A library of the default Programs; `times` are medians of the first of them by digest."""
    kernels = {kernel.digest: kernel for kernel in starters(wanted)}
    digests = sorted(kernels)
    records = {wanted.key(): digests[0]} if record else {}
    rows = [timing(wanted, time, digest) for time, digest in zip(times, digests, strict=False)]
    rows += [timing(wanted, vendor)] if vendor else []
    return library.Library(library.Contents(kernels, records, {wanted.key(): rows})), digests


def test_predictions_do_not_replace_one_call(monkeypatch):
    wanted = workload()
    shelf, digests = stock(wanted, record=True)
    choice = tiers.choose(request(wanted), shelf)
    assert choice.tier == 4 and "no timing on orin-nano-8gb" in choice.reason and choice.standby
    captured = tiers.choose(request(wanted, captured=True, loaded=digests), shelf)
    assert captured.tier == 2 and captured.kernel.digest == digests[0]
    assert tiers.choose(request(wanted, one_call=False), shelf).tier == 2
    assert tiers.choose(request(wanted, emulated=True), shelf).tier == 2
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    assert tiers.choose(request(wanted), shelf).tier == 2


def test_a_board_that_never_races_gains_by_stored_times_or_by_predictions(monkeypatch):
    """As docs/start/jetson.md says what to ship."""
    wanted = workload()
    monkeypatch.setenv("GENSOR_TUNE", "off")
    without, _ = stock(wanted, record=True)
    kept = tiers.choose(request(wanted), without)
    assert kept.tier == 4 and "no timing" in kept.reason
    assert tiers.choose(request(wanted, one_call=False), without).tier == 2
    timed, digests = stock(wanted, record=True, times=[5.0], vendor=10.0)
    won = tiers.choose(request(wanted), timed)
    assert won.tier == 1 and won.kernel.digest == digests[0]
    assert tiers.choose(request(wanted), stock(wanted, record=True, times=[10.0], vendor=5.0)[0]).tier == 4
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    monkeypatch.setenv("GENSOR_RACE", "0")
    assert tiers.choose(request(wanted), without).tier == 2


def test_a_record_of_another_part_serves_only_where_nothing_is_predicted_to_be_faster_here():
    wanted = workload()
    kernels = {kernel.digest: kernel for kernel in starters(wanted)}
    seconds = dict(zip(kernels, predict.predict(list(kernels.values()), wanted, ARCH), strict=True))
    best, other = sorted(filter(lambda digest: np.isfinite(seconds[digest]), kernels), key=lambda d: seconds[d])[:2]
    assert seconds[best] < seconds[other]
    for recorded, elsewhere, tier, chosen in (
        (other, True, 3, best),
        (other, False, 2, other),
        (best, True, 2, best),
    ):
        records, keys = {wanted.key(): recorded}, {wanted.key()} if elsewhere else set()
        shelf = library.Library(library.Contents(kernels, records, elsewhere=keys))
        choice = tiers.choose(request(wanted, one_call=False), shelf)
        assert (choice.tier, choice.kernel.digest) == (tier, chosen)


def test_a_record_knows_its_part(tmp_path):
    wanted = workload()
    with Store.open(tmp_path / "k.db") as store:
        found = rows(next(iter(starters(wanted))).program, wanted)
        record = Record(wanted.key(), ARCH.name, ARCH.part, found[2].abi, found[2].digest, 5.0, 1.0, "ok")
        store.add(*found, record)
        for part, expected in ((ARCH, False), (lookup("agx-orin-64gb"), True)):
            found = library.Library(load.contents(Catalog((store,), ARCH.name), part), arch=part)
            assert found.record(wanted) is not None and found.is_tuned_elsewhere(wanted) == expected


def test_kernels_are_ranked_by_the_potential_times_residuals():
    wanted = workload()
    shelf, _ = stock(wanted)
    choice = tiers.choose(request(wanted, one_call=False), shelf)
    seconds = predict.predict(list(shelf.contents.kernels.values()), wanted, ARCH)
    assert choice.tier == 3 and choice.predicted_us == pytest.approx(min(seconds) * 1e6)
    # Measured elsewhere to take ten times what was predicted, the favourite loses its place.
    other = wanted.with_sizes(m=256)
    (predicted,) = predict.predict([choice.kernel], other, ARCH)
    slow = timing(other, predicted * 1e7, choice.kernel.digest)
    again = library.Library(library.Contents(shelf.contents.kernels, {}, {other.key(): [slow]}))
    assert predict.residual(choice.kernel, again, ARCH) == pytest.approx(10)
    second = tiers.choose(request(wanted, one_call=False), again)
    assert second.tier == 3 and second.kernel.digest != choice.kernel.digest


def test_a_kernel_that_was_never_measured_is_not_preferred_for_that():
    """All kernels but one that is predicted a little slower take 1.6 times what was predicted: so may that one."""
    wanted, other = workload(), workload().with_sizes(m=256)
    shelf, _ = stock(wanted)
    kernels = list(shelf.contents.kernels.values())
    first, *rest = sorted(zip(predict.predict(kernels, wanted, ARCH), kernels, strict=True), key=lambda x: x[0])
    second = next(each for each in rest if each[0] > 1.1 * first[0])
    measured = [kernel for kernel in kernels if kernel is not second[1]]
    times = [
        timing(other, seconds * 1.6e6, kernel.digest)
        for seconds, kernel in zip(predict.predict(measured, other, ARCH), measured, strict=True)
        if np.isfinite(seconds)
    ]
    again = library.Library(library.Contents(shelf.contents.kernels, {}, {other.key(): times}))
    assert predict.residual(second[1], again, ARCH) is None
    assert second[0] < 1.5 * first[0]  # it would win at its predicted time
    assert tiers.choose(request(wanted, one_call=False), again).kernel.digest == first[1].digest


def test_timings_decide_with_a_tie_band():
    wanted = workload()
    shelf, digests = stock(wanted, times=[100.9, 100.0, 150.0], vendor=120.0)
    choice = tiers.choose(request(wanted), shelf)
    assert (choice.tier, choice.kernel.digest, choice.vendor_us) == (1, digests[0], 120.0)  # a tie: by digest
    lost, _ = stock(wanted, times=[100.0], vendor=101.0)  # a tie with the library is not a win
    for one_call in (True, False):
        choice = tiers.choose(request(wanted, one_call=one_call), lost)
        assert choice.tier == 4 and "the library takes 101 µs" in choice.reason and choice.standby
    assert tiers.choose(request(wanted, captured=True, loaded=digests), lost).tier == 3
    assert tiers.choose(request(wanted, captured=True), lost).tier == 3  # standing by for a graph
    assert tiers.choose(request(wanted, captured=True, loaded=()), lost).tier == 4  # nothing can be loaded now
    assert tiers.choose(request(wanted, emulated=True), lost).tier == 3  # there is no library to lose to
    alone, _ = stock(wanted, times=[100.0])
    assert tiers.choose(request(wanted), alone).tier == 4  # nothing to compare with is no win
    assert tiers.choose(request(wanted, one_call=False), alone).tier == 1


def test_several_calls_serve_where_they_are_predicted_to_be_faster(monkeypatch):
    wanted = workload()
    for record, times in ((True, ()), (False, ()), (False, [1e4])):  # recorded, predicted; measured, but we alone
        shelf, digests = stock(wanted, record=record, times=times)
        fused = dict(one_call=False)
        kernel = tiers.choose(request(wanted, **fused), shelf)
        us = kernel.measured_us or kernel.predicted_us
        assert (
            kernel.kernel is not None and tiers.choose(request(wanted, **fused, unfused=lambda: None), shelf) == kernel
        )
        assert tiers.choose(request(wanted, **fused, unfused=lambda us=us: us), shelf) == kernel
        fused["unfused"] = lambda us=us: us * 0.99
        choice = tiers.choose(request(wanted, **fused), shelf)
        how = "measured" if times else "predicted"
        assert choice.tier == 4 and choice.standby and choice.kernel is None and choice.measured_us is None
        assert f"on orin-nano-8gb our best kernel takes {duration(us, 4)} ({how}), the library's calls" in choice.reason
        assert tiers.choose(request(wanted, **fused, emulated=True), shelf).tier in (2, 3)
        assert tiers.choose(request(wanted, **fused, captured=True, loaded=digests), shelf).kernel is not None
        with monkeypatch.context() as only:
            only.setenv("GENSOR_TUNE", "predicted")
            assert tiers.choose(request(wanted, **fused), shelf) == kernel
    won, _ = stock(wanted, times=[100.0], vendor=120.0)
    assert tiers.choose(request(wanted, one_call=False, unfused=lambda: 1.0), won).tier == 1  # a timing says more


def test_a_new_size_has_the_best_of_the_kernels_for_a_similar_size(monkeypatch):
    arch = lookup("sm_90")
    shelf, counted = load.library(arch), []
    seconds = predict._seconds
    monkeypatch.setattr(predict, "_seconds", lambda *of: counted.append(of) or seconds(*of))

    def choose(m, **keywords):
        wanted = matmul.workload(m, 768, 1024, dtype="float16")
        return tiers.choose(replace(request(wanted, one_call=False, **keywords), arch=arch), shelf)

    ratios, many, few = [], [], []
    for m in np.random.default_rng(0).permutation(np.arange(700, 1400))[:60].tolist():
        counted.clear()
        choice = choose(m)
        (few if "similar" in choice.reason else many).append(len(counted))
        assert choose(m) == choice
        monkeypatch.setenv("GENSOR_DETERMINISTIC", "1")
        best = choose(m)
        monkeypatch.delenv("GENSOR_DETERMINISTIC")
        assert "similar" not in best.reason
        ratios.append(choice.predicted_us / best.predicted_us)
    assert len(many) <= 12 and np.median(few) <= 4 < min(many)
    assert 1 <= np.median(ratios) <= 1.01 and np.percentile(ratios, 95) <= 1.12
    shelf.note([timing(matmul.workload(8, 8, 8), 1.0)])  # times change the order
    assert "similar" not in choose(m).reason


def test_kernels_of_lesser_classes_fit():
    narrow = workload(510, 510, 510)
    wanted = workload(512, 512, 512)
    shelf, _ = stock(narrow)
    choice = tiers.choose(request(wanted, one_call=False), shelf)
    assert choice.tier == 3 and choice.kernel.serves.align["a"] == 8
    assert tiers.choose(request(workload(511, 511, 511), one_call=False), shelf).tier == 4
    assert tiers.choose(request(workload(dtype="float64"), one_call=False), shelf).tier == 4
    assert tiers.choose(request(workload(trans_a=True), one_call=False), shelf).tier == 4


def test_a_compiled_epilogue_serves_only_itself():
    wanted = workload(epilogue="bias_relu")
    kernel = next(k for k in starters(wanted) if "epilogue_fixed" in dict(k.program.values))
    fixed = library.generate(kernel.program.replace(epilogue_fixed=1), wanted, ARCH)
    assert fixed.epilogue_codes and fixed.fits(wanted)
    assert not fixed.fits(workload(epilogue="bias")) and not fixed.fits(workload())
    assert kernel.fits(workload(epilogue="bias"))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_predictions_are_the_spaces(dtype):
    wanted = workload(500, 300, 700, dtype=dtype, trans_b=True)
    kernels = list(starters(wanted))
    for kernel, seconds in zip(kernels, predict.predict(kernels, wanted, ARCH), strict=True):
        space = Space(wanted, ARCH).family(kernel.program.family)
        assert seconds == pytest.approx(float(space.potential(space.point(kernel.program)[None])[0]), rel=1e-6)
    off = library.generate(kernels[0].program.replace(split_k=7), wanted, ARCH)
    deep = library.generate(kernels[0].program.replace(split_k=32), wanted.with_sizes(k=64), ARCH)
    assert (
        predict.predict([off], wanted, ARCH) == predict.predict([deep], wanted.with_sizes(k=64), ARCH) == [float("inf")]
    )


AGX = lookup("agx-orin-64gb")


# ---- portfolios: their kernels serve sizes that were not tuned, others only if no portfolio can


def library_of(kernels, portfolio):
    """A library of these kernels, of which `portfolio` is one."""
    return library.Library(library.Contents({k.digest: k for k in kernels}, {}, {}, set(portfolio)))


def fastest_first(kernels, wanted):
    seconds = dict(zip((k.digest for k in kernels), predict.predict(kernels, wanted, ARCH), strict=True))
    return sorted(kernels, key=lambda kernel: (seconds[kernel.digest], kernel.digest))


def choose_several(shelf, wanted, **keywords):
    return tiers.choose(request(wanted, **{"one_call": False, **keywords}), shelf)


def test_a_portfolio_kernel_comes_before_any_other():
    wanted = workload()
    ranked = fastest_first(list(starters(wanted)), wanted)
    chosen = [kernel.digest for kernel in ranked[1:4]]
    choice = choose_several(library_of(ranked, chosen), wanted)
    assert (choice.tier, choice.kernel.digest) == (3, chosen[0])
    assert choice.reason == "best of 3 portfolio kernels, by predicted time"


def test_a_portfolio_that_cannot_serve_the_call_is_passed_over():
    wanted, fused = workload(), workload(epilogue="bias_relu")
    ranked = fastest_first(list(starters(wanted)), wanted)
    fixed = library.generate(ranked[-1].program.replace(epilogue_fixed=1), fused, ARCH)
    shelf = library_of([*ranked, fixed], [fixed.digest])
    assert choose_several(shelf, fused).kernel.digest == fixed.digest
    assert choose_several(shelf, workload(epilogue="bias")).kernel.digest != fixed.digest
    # More splits than there are steps of k: not legal for this shape.
    deep = library.generate(ranked[0].program.replace(split_k=32), wanted, ARCH)
    short = wanted.with_sizes(k=64)
    choice = choose_several(library_of([*ranked, deep], [deep.digest]), short)
    assert choice.kernel.digest == fastest_first(ranked, short)[0].digest and "none of the portfolio" in choice.reason


def test_inside_graph_capture_the_portfolio_must_be_loaded():
    wanted = workload()
    ranked = fastest_first(list(starters(wanted)), wanted)
    chosen, loaded = ranked[1].digest, ranked[2].digest
    shelf = library_of(ranked, [chosen])
    choice = choose_several(shelf, wanted, captured=True, loaded=[loaded])
    assert choice.kernel.digest == loaded and "best of 1 stored kernels" in choice.reason
    assert choose_several(shelf, wanted, captured=True, loaded=[chosen, loaded]).kernel.digest == chosen


def test_portfolios_of_all_fitting_classes_count():
    wanted, narrow = workload(), workload(510, 510, 510)
    wide, lesser = list(starters(wanted)), list(starters(narrow))
    best, least = fastest_first(wide, wanted)[0].digest, fastest_first(lesser, wanted)[0].digest
    both = choose_several(library_of([*wide, *lesser], [wide[0].digest, lesser[0].digest]), wanted)
    assert both.reason == "best of 2 portfolio kernels, by predicted time"
    # Classes by themselves: without a portfolio for the better class, its kernels still take part.
    mixed = choose_several(library_of([*wide, *lesser], [least]), wanted)
    assert mixed.kernel.digest == best
    assert f"best of {len(wide) + 1} stored kernels that fit (1 of a portfolio), by" in mixed.reason
    assert choose_several(library_of([*wide, *lesser], [least]), narrow).kernel.digest == least


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

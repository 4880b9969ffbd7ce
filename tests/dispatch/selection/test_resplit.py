"""Kernels of portfolios divide k among blocks for sizes that were not tuned, within their verification."""

from dataclasses import replace

import pytest

import gensor_kernels
from gensor_database import Kernel, Store, Timing, canonical, export, launched, prune, winner
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library, load, predict, tiers
from gensor_kernels.dispatch.selection.pins import Pins
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import archs, lookup
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.verify import verify
from tests.campaign_size import sample
from tests.doubles.device import MARK, FakeDevice, Race
from tests.doubles.kernels import ARCH, aligned, starters, workload
from tests.doubles.stored import kernel_rows

from .test_tiers import request
from .test_tiers import timing as plainly

SPLIT = "split_k"
NOTHING = tiers.Choice(4, "")
SMALLEST = {"split_k": 1, "stream": 0}
TUNED, DEEP = workload(64, 64, 4096), workload(48, 40, 30000)


def split(wanted=TUNED):
    """A kernel that was tuned with k in parts."""
    return next(each for each in starters(wanted) if each.program[SPLIT] > 1)


def kernel_of_one_part():
    """A kernel that was tuned with k in one part."""
    return next(each for each in starters(TUNED) if each.program[SPLIT] == 1)


def divided(kernel, arch=ARCH):
    """The kernel itself, and as it is launched with other divisions of k."""
    return [kernel, *(library.relaunch(kernel, each) for each in library.divide(kernel, arch)[1:])]


def library_of(*kernels, arch=ARCH, times=()):
    by_key = {row.key: [each for each in times if each.key == row.key] for row in times}
    return library.Library(library.Contents({each.digest: each for each in kernels}, {}, by_key), arch=arch)


def timing(wanted, median, kernel):
    """The time of a kernel that is launched with another division of k."""
    told = {"launched": {"kernel": kernel.base, "program": kernel.program.to_json()}}
    return replace(plainly(wanted, median, kernel.digest), samples=canonical(told))


def choose(shelf, wanted=DEEP):
    return tiers.choose(request(wanted, one_call=False), shelf)


def test_they_differ_in_the_parts_of_k_alone():
    kernel = split()
    first, *others = divided(kernel)
    assert first is kernel and len(others) > 8
    family = FAMILIES[kernel.program.family]
    for each in others:
        assert {name for name, value in each.program.values if value != kernel.program[name]} == {SPLIT}
        assert family.constants(each.program, each.serves) == family.constants(kernel.program, kernel.serves)
        assert family.branches(each.program, each.serves) <= family.branches(kernel.program, kernel.serves)
        assert each.code is kernel.code and each.stored == kernel.digest != each.digest
    assert len({each.digest for each in others}) == len(others)
    assert [each.digest for each in divided(kernel)] == [kernel.digest, *(k.digest for k in others)]


@pytest.mark.parametrize("name", sample(sorted({each.name for each in archs()}), 1))
def test_divisions_of_shipped_kernels_share_binaries_and_branches(name):
    counted = 0
    for kernel in load.read(lookup(name)).kernels.values():
        family = FAMILIES[kernel.program.family]
        for each in library.divide(kernel, lookup(name))[1:]:
            counted += 1
            assert family.constants(each, kernel.serves) == family.constants(kernel.program, kernel.serves)
            assert family.branches(each, kernel.serves) <= family.branches(kernel.program, kernel.serves)
    assert counted > 1000


def test_a_kernel_as_it_is_stored_is_itself():
    """Kernels of two classes may share a digest, and with it the list of Programs of the first."""
    kernel = split()
    assert library_of(kernel).launched(kernel, kernel.program.replace()) is kernel


def test_a_kernel_that_was_executed_with_k_whole_keeps_it_whole():
    assert divided(kernel_of_one_part()) == [kernel_of_one_part()]


def test_another_process_finds_the_division_that_is_pinned(tmp_path):
    """And inside graph capture the kernel, where the library is pinned for other calls."""
    path, asked, found = tmp_path / "kernels.json", request(DEEP, one_call=False), choose(library_of(split())).kernel
    captured, writer = replace(asked, captured=True), Pins(path)
    writer.note(asked, None, False)
    writer.note(captured, found, False)
    writer.note(captured, found, True)
    writer.close()
    reader, shelf = Pins(path), library_of(split())
    held = [reader.choose(*each, shelf).kernel for each in ((asked, NOTHING, False), (captured, NOTHING, False))]
    assert held == [None, found] and found.base is not None
    assert reader.choose(asked, NOTHING, True, shelf).kernel == found
    with pytest.raises(gensor_kernels.PinError, match=r"no kernel that .* pins for matmul .* can serve it here"):
        reader.choose(captured, NOTHING, False, library_of(kernel_of_one_part()))


def test_the_best_division_serves_and_is_explained():
    kernel = split()
    shelf = library_of(kernel)
    among = divided(kernel)
    seconds = predict.predict(among, DEEP, ARCH)
    best = among[seconds.index(min(seconds))]
    choice = choose(shelf)
    assert choice.kernel == best != kernel and choice.predicted_us == pytest.approx(min(seconds) * 1e6)
    assert choice.reason.endswith(f", with its work divided among {best.program[SPLIT]} blocks for this size")
    assert best.launches(DEEP)[0].grid > kernel.launches(DEEP)[0].grid
    assert best.workspace(DEEP)[0] > kernel.workspace(DEEP)[0]
    # Without a part there is nothing to decide by, and where it is best as it was tuned it stays so.
    assert choose(library_of(kernel, arch=None)).kernel == kernel
    choices = [choose(shelf, TUNED.with_sizes(m=m)) for m in (8, 64, 256, 1024)]
    assert [each.kernel == kernel for each in choices] == ["divided" not in each.reason for each in choices]
    assert kernel in [each.kernel for each in choices]


def test_a_division_that_is_stored_itself_is_that_kernel():
    kernel = split()
    best = choose(library_of(kernel)).kernel
    stored = library.generate(best.program, TUNED, ARCH)
    choice = choose(library_of(kernel, stored))
    assert choice.kernel == stored and choice.kernel.base is None
    assert len(tiers.candidates(request(DEEP), library_of(kernel, stored))) == 2


def test_captures_and_refusals_name_the_stored_kernel():
    kernel = split()
    shelf = library_of(kernel)
    ask = {"one_call": False}
    assert tiers.choose(request(DEEP, captured=True, loaded={kernel.digest}, **ask), shelf).kernel.base == kernel.digest
    assert tiers.choose(request(DEEP, captured=True, loaded=set(), **ask), shelf).kernel is None
    assert tiers.choose(request(DEEP, refused={kernel.digest}, **ask), shelf).kernel is None


def test_a_time_of_another_process_counts_for_the_division_it_was_taken_with():
    kernel = split()
    best = choose(library_of(kernel)).kernel
    times = [timing(DEEP, 5.0, best)]
    choice = tiers.choose(request(DEEP, one_call=False), library_of(kernel, times=times))
    assert (choice.tier, choice.measured_us, choice.kernel) == (1, 5.0, best)
    # Not where its kernel is gone, nor where k has fewer steps than that, nor without a part, nor
    # where the digest is none of that kernel's divisions.
    gone = next(each for each in starters(TUNED) if each.program[SPLIT] == 1)
    for shelf, wanted in (
        (library_of(gone, times=times), DEEP),
        (library_of(kernel, times=[timing(workload(48, 40, 32), 5.0, best)]), workload(48, 40, 32)),
        (library_of(kernel, arch=None, times=times), DEEP),
        (library_of(kernel, times=[timing(DEEP, 5.0, replace(best, digest="0" * 64))]), DEEP),
        (library_of(kernel, gone, times=[timing(DEEP, 5.0, replace(best, base=gone.digest))]), DEEP),
    ):
        assert winner(shelf.timings(wanted)) is None
        assert tiers.choose(request(wanted, one_call=False), shelf).tier != 1


def test_a_race_stores_the_division_that_won(no_databases, monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "user.db"))
    wanted = workload(16, 8, 30000)
    pairs = zip(kernel_rows(TUNED, limit=100), starters(TUNED), strict=False)
    stored, made = next((rows, made) for rows, made in pairs if made.program[SPLIT] > 1)
    code = replace(made.code, cubin=b"c")
    kernel = library.Kernel(stored[2].digest, made.program, made.serves, lambda: code)

    def process(*times):
        return Runtime(FakeDevice(clock=Race()), library_of(kernel, times=times))

    a, b = aligned((16, 30000)), aligned((30000, 8))
    runtime = process()
    assert [float(runtime.call(a, b, None, (), None, None)[0, 0]) for _ in range(3)] == [0, MARK, MARK]
    with Store.open(tmp_path / "user.db") as store:
        rows = list(store.rows(Timing))
        (row,) = (row for row in rows if row.kernel_digest)
        digest, program = launched(row)
        best = choose(library_of(kernel), wanted).kernel
        assert (row.key, digest, row.kernel_digest) == (wanted.key(), kernel.digest, best.digest)
        assert program == best.program.to_json() != kernel.program.to_json()
        # Another process launches the same from its first call on, and the database keeps the kernel.
        again = process(*rows)
        assert float(again.call(a, b, None, (), None, None)[0, 0]) == MARK and not again.device.races
        store.add(*stored)
        prune(store)
        assert [each.digest for each in store.rows(Kernel)] == [kernel.digest]
        export(store, tmp_path / "shipped.db", ARCH.name)
    with Store.open(tmp_path / "shipped.db", readonly=True) as store:
        assert [each.digest for each in store.rows(Kernel)] == [kernel.digest] and row in store.rows(Timing)


def kernels_with(way, arch=ARCH):
    """Shipped kernels with this argument, by family."""
    found = {}
    for each in load.read(arch).kernels.values():
        if any(name == way and value > SMALLEST[way] for name, value in each.program.values):
            found.setdefault(each.program.family, []).append(each)
    return found


@pytest.mark.usefixtures("needs_emulator")
@pytest.mark.parametrize(
    ("way", "families"),
    [("split_k", {"contraction_mma", "contraction_simt", "gemv", "rows"}), ("stream", {"contraction_mma"})],
)
def test_divisions_of_shipped_kernels_compute_the_same(way, families):
    kernels = kernels_with(way)
    assert families <= set(kernels)
    for family, among in sample(sorted(kernels.items()), 2):
        kernel = min(among, key=lambda each: each.digest)
        others = divided(kernel)[1:]
        for each in others:
            assert {name for name, value in each.program.values if value != kernel.program[name]} == {way}
        each = others[len(others) // 2]
        verdict = verify(candidate(FAMILIES[family], each.program, each.serves), each.serves)
        assert verdict.outcome == "ok", (family, each.program, verdict)


def test_a_stream_has_no_more_blocks_than_its_compiler_was_promised():
    hopper, named = lookup("sm_90"), set()
    products = [each for each in kernels_with("stream", hopper)["contraction_mma"] if "batch" in each.serves.size]
    for kernel in sorted(products, key=lambda each: each.digest)[:12]:
        sizes = [kernel.serves.with_sizes(batch=1, m=m, n=512, k=2048) for m in (16, 48, 112, 240, 512, 1000)]
        legal = [each for each in divided(kernel, hopper) if library.is_legal(each, sizes[-1], hopper)]
        assert len(legal) > 2 and max(x.program["stream"] for x in legal) <= kernel.program["min_blocks"] * hopper.sms
        shelf = library_of(kernel, arch=hopper)
        choices = [tiers.choose(replace(request(each, one_call=False), arch=hopper), shelf) for each in sizes]
        blocks = {int(each.reason.split("among ")[-1].split()[0]) for each in choices if "divided" in each.reason}
        assert blocks == {each.kernel.program["stream"] for each in choices if each.kernel.base is not None}
        named |= blocks
    assert named

"""gensor-tune refresh: kernels of another version built and verified again, every timing kept, the rest left."""

import dataclasses
import json

import pytest

from gensor_database import Kernel, Portfolio, Record, Source, Store, Timing, Verification, canonical, merge
from gensor_kernels.build.sass import Sass
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.binaries import LEFT_OUT
from gensor_tuner.search.trace import replay
from gensor_tuner.store import refresh as refreshing
from gensor_tuner.verify.verify import Verdict
from tests.doubles.kernels import ARCH, workload
from tests.doubles.store_rows import everything
from tests.doubles.stored import kernel_rows, lines, record_of, stock

pytestmark = pytest.mark.usefixtures("needs_emulator")


@pytest.fixture
def refresh(gensor_tune, tmp_path):
    """refresh("--budget", "5") -> (exit code, results, stderr) of k.db."""

    def run(*arguments):
        found = tmp_path / "found.jsonl"
        code, _, err = gensor_tune("refresh", "--db", tmp_path / "k.db", "--json", found, *arguments)
        return code, lines(found), err

    return run


def older(kernel: Kernel, **program) -> Kernel:
    """The same kernel as the version before would have stored it; coordinates that are None it did not have."""
    body = {**json.loads(kernel.program), **program}
    kept = {name: value for name, value in body.items() if value is not None}
    return dataclasses.replace(kernel, abi=kernel.abi - 1, program=canonical(kept))


def outdated(path, *changes):
    """A database of the version before: a kernel per change of its Program, each with a record, a timing, a rank."""
    wanted = [workload(64, 64, 32 * (number + 2)) for number in range(len(changes))]
    with Store.open(path) as store:
        digests = []
        for each, change, (source, binary, kernel, _) in zip(wanted, changes, kernel_rows(wanted[0]), strict=False):
            old = older(kernel, **change)
            store.add(source, binary, old, Verification(old.digest, "emulator", "ok"), record_of(each, old))
            store.add(Timing(each.key(), ARCH.name, ARCH.part, old.digest, None, 7.0, created=3))
            digests.append(old.digest)
        store.replace_portfolio(ARCH.name, ARCH.part, wanted[0].class_key(), digests)
    return wanted


def test_winners_of_another_abi_are_built_and_verified_again(refresh, tmp_path):
    """The second kernel had not got every coordinate yet; the third had one that is no more."""
    first, second, third = outdated(tmp_path / "k.db", {}, {"raster": None}, {"warp_specialised": 1})
    before = everything(tmp_path / "k.db")
    code, found, told = refresh()
    assert code == 0 and sorted(each["status"] for each in found) == ["left", "rebuilt", "rebuilt"]
    assert "has no warp_specialised any more" in next(each["reason"] for each in found if each["status"] == "left")
    after, abis = everything(tmp_path / "k.db"), {name: family.abi for name, family in FAMILIES.items()}
    times = [{row for row in rows.values() if isinstance(row, Timing)} for rows in (before, after)]
    assert times[0] == times[1] and "all 3 timings are kept" in told
    assert {digest for digest, row in before.items() if not isinstance(row, Portfolio)} <= set(after)
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        for each in (first, second):
            entry = store.find(each.key(), ARCH.name, ARCH.part, abis)
            assert entry.verified == "emulator" and entry.binary().cubin.startswith(b"\x7fELF")
            assert json.loads(entry.record.provenance)["refreshed_from"] in before
            space = Space(Workload.from_json(entry.record.key), lookup("sm_87"))
            assert replay(space, entry.record.walk) == program_from_json(entry.kernel.program)
        assert store.find(third.key(), ARCH.name, ARCH.part, abis) is None
        cover = store.portfolio(ARCH.name, ARCH.part, first.class_key())
        assert sorted(each.kernel.abi - abis[each.kernel.family] for each in cover) == [-1, 0, 0]
    code, found, _ = refresh()
    assert code == 0 and sorted(each["status"] for each in found) == ["current", "current", "left"]
    assert everything(tmp_path / "k.db") == after


def test_a_kernel_of_few_rows_that_portfolios_alone_refer_to_is_built_again(refresh, tmp_path):
    """Its family does not serve the sizes by which a class is usually stood for."""
    wanted = workload(1, 64, 64)
    ((source, binary, kernel, _),) = (each for each in kernel_rows(wanted, 9) if each[2].family == "gemv")
    with Store.open(tmp_path / "k.db") as store:
        old = older(kernel)
        store.add(source, binary, old, Verification(old.digest, "emulator", "ok"))
        store.replace_portfolio(ARCH.name, ARCH.part, wanted.class_key(), [old.digest])
        code, found, _ = refresh()
        assert code == 0 and [each["status"] for each in found] == ["rebuilt"]
        (ranked,) = store.portfolio(ARCH.name, ARCH.part, wanted.class_key())
        assert ranked.kernel.abi == kernel.abi and ranked.verified == "emulator"


def test_a_kernel_in_which_ptxas_leaves_out_a_wait_is_not_stored(refresh, tmp_path, monkeypatch):
    outdated(tmp_path / "k.db", {})
    before = everything(tmp_path / "k.db")
    monkeypatch.setattr(
        "gensor_kernels.build.resources.disassemble_many",
        lambda cubins, jobs: [{"contraction_simt": Sass(unguarded=1)} for _ in cubins],
    )
    code, (found,), _ = refresh()
    assert code == 1 and found["status"] == "failed" and found["reason"] == f"not compiled: {LEFT_OUT}"
    assert everything(tmp_path / "k.db") == before


def test_what_came_without_cubins_becomes_usable(refresh, tmp_path):
    (wanted,) = stock(tmp_path / "theirs.db", ((64, 64, 64),), kernels=2)
    with Store.open(tmp_path / "k.db") as store, Store.open(tmp_path / "theirs.db", readonly=True) as theirs:
        merge(store, theirs, binaries=False)
        assert not store.find(wanted.key(), ARCH.name).usable
        code, found, _ = refresh()
        entry = store.find(wanted.key(), ARCH.name)
        assert code == 0 and {each["status"] for each in found} == {"rebuilt"} and entry.usable
        assert b"kernel 0" not in entry.binary().cubin  # their machine code is not taken
        assert len(store.portfolio(ARCH.name, ARCH.part, wanted.class_key())) == 2


def test_a_new_toolchain_builds_again_and_a_record_is_newer_than_the_one_it_follows(refresh, tmp_path):
    wanted = workload(64, 64, 64)
    source, binary, kernel, _ = kernel_rows(wanted)[0]
    binary = dataclasses.replace(binary, toolchain="nvrtc 12.6.20")
    kernel = dataclasses.replace(kernel, binary_digest=binary.digest)
    record = record_of(wanted, kernel, created=4_000_000_000)  # a clock that was wrong
    with Store.open(tmp_path / "k.db") as store:
        store.add(source, binary, kernel, Verification(kernel.digest, "emulator", "ok"), record)
        assert refresh()[1][0]["reason"] == "it was compiled by nvrtc 12.6.20"
        assert store.find(wanted.key(), ARCH.name).kernel.digest != kernel.digest
        assert store.find(wanted.key(), ARCH.name).record.created == record.created + 1


def test_a_rebuilt_kernel_is_predicted_with_the_compilers_report_as_a_tuned_one_is(gensor_tune, refresh, tmp_path):
    (tmp_path / "one.csv").write_text("op,dtype,m,n,k\nmatmul,fp32,96,96,64\n")
    tune = ("--arch", "sm_87", "--shapes", tmp_path / "one.csv", "--db", tmp_path / "tuned.db", "--jobs", "1")
    assert gensor_tune(*tune)[0] == 0
    with Store.open(tmp_path / "tuned.db", readonly=True) as tuned, Store.open(tmp_path / "k.db") as store:
        (record,) = tuned.rows(Record)
        (kernel,) = tuned.rows(Kernel, digest=record.kernel_digest)
        binary = tuned.binary(kernel)
        (source,) = (row for row in tuned.rows(Source) if row.digest == binary.source_digest)
        before = dataclasses.replace(binary, toolchain="nvrtc 12.6.20")
        old = dataclasses.replace(kernel, binary_digest=before.digest)
        made = dataclasses.replace(record, kernel_digest=old.digest, predicted_us=1e6)
        larger = dataclasses.replace(made, part="orin-nx-16gb")
        store.add(source, before, old, Verification(old.digest, "emulator", "ok"), made, larger)
        assert [each["status"] for each in refresh()[1]] == ["rebuilt"]
        assert store.find(record.key, record.arch, record.part).record.predicted_us == record.predicted_us
        predicted = store.find(record.key, record.arch, larger.part).record.predicted_us
        assert predicted < record.predicted_us, "a record's prediction is for its own part"


def test_what_was_refuted_or_cannot_be_read_is_left(refresh, tmp_path):
    wanted = workload(64, 64, 64)
    with Store.open(tmp_path / "k.db") as store:
        source, binary, kernel, verdict = kernel_rows(wanted)[0]
        store.add(source, binary, kernel, verdict, Verification(kernel.digest, "device", "wrong", "nine"))
        store.add(record_of(wanted, kernel))
        for number, text in enumerate(("[]", '{"family":"gone"}', '{"family":"contraction_simt","level":"high"}')):
            bad = dataclasses.replace(older(kernel), program=text)
            store.add(bad, record_of(workload(64, 64, 96 + number), bad))
    before = everything(tmp_path / "k.db")
    code, found, _ = refresh()
    assert code == 0 and [each["status"] for each in found] == ["left"] * 4
    assert sum("rejects it" in each["reason"] for each in found) == 1 and everything(tmp_path / "k.db") == before


def test_a_kernel_that_is_wrong_when_built_again_fails_the_run_and_is_not_named(refresh, tmp_path, monkeypatch):
    outdated(tmp_path / "k.db", {})
    monkeypatch.setattr(refreshing, "verify", lambda *_: Verdict("wrong", "element 3 is 9", 4.0))
    before = everything(tmp_path / "k.db")
    code, (found,), _ = refresh()
    assert code == 1 and found["status"] == "failed" and found["reason"] == "wrong: element 3 is 9"
    after = everything(tmp_path / "k.db")
    new = [after[digest] for digest in after.keys() - before.keys()]
    assert before.keys() < after.keys() and not any(isinstance(row, (Record, Portfolio)) for row in new)
    assert Store.open(tmp_path / "k.db", readonly=True).kernel(found["now"]).verified == "rejected"


def test_an_interrupted_run_or_a_budget_keeps_what_is_built_and_leaves_the_rest(refresh, tmp_path, monkeypatch):
    outdated(tmp_path / "k.db", {}, {})
    before = everything(tmp_path / "k.db")
    code, found, _ = refresh("--budget", "0")
    assert code == 1 and all("the budget was spent" in each["reason"] for each in found)
    assert everything(tmp_path / "k.db") == before
    seen, verify = [], refreshing.verify

    def interrupted(*arguments):
        seen.append(arguments)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return verify(*arguments)

    monkeypatch.setattr(refreshing, "BATCH", 1)
    monkeypatch.setattr(refreshing, "verify", interrupted)
    code, found, _ = refresh("--jobs", "1")
    assert code == 130 and [each["status"] for each in found] == ["rebuilt"]
    code, found, _ = refresh("--jobs", "1")
    assert code == 0 and sorted(each["status"] for each in found) == ["current", "rebuilt"]

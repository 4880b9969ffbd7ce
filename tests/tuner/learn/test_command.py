"""gensor-tune learn: synthetic times with a residual that is known, through the real command line, up to dispatch."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from gensor_database import Catalog, Residual, Store, Timing, open_layers
from gensor_kernels.dispatch.selection import library, load, predict, tiers
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.residual import ANALYTIC_NOISE, FEATURES, Learnt, Part
from gensor_kernels.machine.residual import Residual as Model
from gensor_kernels.programs.core.program_batch import Roster
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.tune import Run
from gensor_tuner.search.walk import walk
from tests.dispatch.selection.test_tiers import request
from tests.doubles.kernels import ARCH, starters, workload
from tests.doubles.store_rows import add_rows
from tests.doubles.stored import kernel_rows, record_of

pytest.importorskip("gensor_tuner.cli.app")
learning = pytest.importorskip("gensor_tuner.learn.command")

SIZES = [(64 * m, 64 * n, 128 * k) for m in (1, 4, 9, 16) for n in (2, 7, 12) for k in (1, 3, 8)]
UNSEEN = (640, 576, 640)
NOISE = 0.02
ABIS = {name: family.abi for name, family in FAMILIES.items()}


@pytest.fixture
def gensor_tune(gensor_tune):
    """gensor_tune("learn") -> (exit code, stdout, stderr), on k.db."""
    return lambda *arguments: gensor_tune(*arguments, "--db", "{}/k.db")


def truth(program):
    """What the potential does not know: small blocks take half as long again, and everything a fifth longer."""
    values = dict(program.values)
    return 0.2 + 0.4 * (values["block_m"] * values["block_n"] <= 64 * 64)


def stock(path, part=ARCH.part, slower=0.0, sizes=SIZES, conditions="{}", samples="{}"):
    """A database of default Programs with their times on a part; {Program: kernel row}."""
    rng, arch = np.random.default_rng(0), lookup(part)
    groups = kernel_rows(workload(), limit=100)
    kernels = list(starters(workload()))[:100]
    with Store.open(path) as store:
        store.add(*(row for group in groups for row in group), record_of(workload(), groups[0][2]))
        store.replace_portfolio(ARCH.name, ARCH.part, workload().class_key(), [group[2].digest for group in groups])
        for size in sizes:
            wanted = workload(*size)
            seconds = predict.predict(kernels, wanted, arch)
            times = {
                group[2].digest: 1e6 * each * np.exp(truth(kernel.program) + slower + NOISE * rng.normal())
                for group, kernel, each in zip(groups, kernels, seconds, strict=True)
                if np.isfinite(each)
            }
            place = (wanted.key(), arch.name, part)
            store.add(*(Timing(*place, digest, None, us, samples, conditions) for digest, us in times.items()))
            store.add(Timing(*place, None, "cupy.matmul", 10.0))
    return {kernel.program: group[2] for kernel, group in zip(kernels, groups, strict=True)}


def model_in(path):
    with Store.open(path, readonly=True) as store:
        *_, row = sorted(store.rows(Residual), key=lambda each: each.created)
        return Model.from_json(row.model.decode()), row


def said(model, wanted, arch=ARCH, conditions="{}"):
    """[(truth, what the model says, its doubt)] of the default Programs for a Workload."""
    found = []
    for kernel in starters(wanted):
        family = predict.FAMILIES[kernel.program.family]
        places, terms = Roster(family, [kernel.program]).terms(wanted, arch)
        if len(places):
            mean, doubt = model.of(terms, arch, wanted.kind, wanted.operator, conditions)
            found.append((truth(kernel.program), float(mean[0]), float(doubt[0])))
    return np.array(found)


def test_a_known_residual_is_learnt_from_a_database(gensor_tune, tmp_path):
    pytest.importorskip("lightgbm")
    stock(tmp_path / "k.db")
    code, out, err = gensor_tune("learn")
    assert (code, err) == (0, "") and f"{ARCH.part} " in out and "float32" in out and "matmul" in out
    model, row = model_in(tmp_path / "k.db")
    assert row.arch == "" and json.loads(row.learnt)["parts"] == {ARCH.part: json.loads(row.learnt)["timings"]}
    assert model.names == FEATURES and model.parts[ARCH.part].sms == ARCH.sms
    true, mean, doubt = said(model, workload(*UNSEEN)).T
    assert len(set(true)) == 2 and np.abs(mean - true).mean() < 0.03
    assert NOISE < np.median(doubt) < 5 * NOISE
    # Other parts of the capability borrow from it, at more doubt; a part of another gets half of the trees.
    near = said(model, workload(*UNSEEN), lookup("agx-orin-64gb"))
    assert np.abs(near[:, 1] - near[:, 0]).mean() < 0.08 and (near[:, 2] > 0.1).all()


def test_times_taken_beside_a_program_teach_nothing(tmp_path):
    stock(tmp_path / "k.db", samples='{"background":true}', sizes=SIZES[:2])
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        assert not learning.lessons(store).samples
        contents = load.contents(Catalog([store], ARCH.name, ABIS), ARCH)
        shelf = library.Library(contents)  # no kernel's predictions are corrected by them either
        assert contents.kernels and not any(shelf.timed(kernel) for kernel in contents.kernels.values())


def test_what_was_learnt_chooses_the_kernel_of_an_unseen_shape(gensor_tune, tmp_path):
    pytest.importorskip("lightgbm")
    kernels = stock(tmp_path / "k.db")
    digests = {row.digest: program for program, row in kernels.items()}
    wanted = workload(*UNSEEN)
    assert gensor_tune("learn")[0] == 0

    def chosen(residual):
        with open_layers("sm_75", tmp_path / "k.db") as layers:
            contents = load.contents(layers.load(ARCH.name), ARCH)
        assert contents.residual is not None
        kept = replace(contents, timings={}, residual=contents.residual if residual else None)
        choice = tiers.choose(request(wanted, one_call=False), library.Library(kept))
        return digests[choice.kernel.digest], choice

    arch_seconds = {
        program: seconds * np.exp(truth(program))
        for program, seconds in zip(
            kernels, predict.predict([k for k in starters(workload())][: len(kernels)], wanted, ARCH), strict=True
        )
        if np.isfinite(seconds)
    }
    best = min(arch_seconds.values())
    program, choice = chosen(True)
    assert choice.reason.endswith("by predicted time that earlier timings correct")
    assert arch_seconds[program] < 1.05 * best and choice.predicted_us == pytest.approx(1e6 * best, rel=0.1)
    assert chosen(False)[1].reason.endswith("by predicted time")


def test_power_modes_and_clocks_are_told_apart(gensor_tune, tmp_path):
    pytest.importorskip("lightgbm")
    slow, fast = (json.dumps({"driver": 12060, "power_mode": f"pmode:000{mode}"}) for mode in (1, 0))
    stock(tmp_path / "k.db", slower=0.7, sizes=SIZES[:12], conditions=slow)
    stock(tmp_path / "k.db", sizes=SIZES[12:], conditions=fast)
    assert gensor_tune("learn")[0] == 0
    model, _ = model_in(tmp_path / "k.db")
    assert set(model.parts) == {f"{ARCH.part}@pmode:0000", f"{ARCH.part}@pmode:0001"}
    for conditions, slower in ((slow, 0.7), (fast, 0.0)):
        true, mean, _ = said(model, workload(*UNSEEN), conditions=conditions).T
        assert np.abs(mean - true - slower).mean() < 0.08
    # A clock that was recorded is the one that the potential is asked at; that of an idle GPU is not believed.
    for mhz, expected in (("500", 0.5), ("100", None), ("", None)):
        row = Timing("k", ARCH.name, ARCH.part, "d", None, 1.0, json.dumps({"machine": {"clocks": {"clocks.sm": mhz}}}))
        assert learning._clock(row, ARCH) == expected


def test_without_timings_it_is_said(gensor_tune, tmp_path):
    stock(tmp_path / "k.db", sizes=())
    code, _, err = gensor_tune("learn")
    assert code == 2 and "has no timings of its kernels to learn from: gensor-tune measure" in err
    code, _, err = gensor_tune("learn", "--arch", "h200")
    assert code == 2 and "on h200" in err


def test_timings_of_another_kind_are_left_out_with_a_reason(gensor_tune, tmp_path):
    pytest.importorskip("lightgbm")
    kernels = stock(tmp_path / "k.db", sizes=SIZES[:2])
    digest = next(iter(kernels.values())).digest
    good = workload(*SIZES[0]).key()
    add_rows(
        tmp_path / "k.db",
        Timing(good, ARCH.name, ARCH.part, "f" * 64, None, 1.0),
        Timing(good, ARCH.name, "a-gpu-not-listed", digest, None, 1.0),
        Timing("{}", ARCH.name, ARCH.part, digest, None, 1.0),
        Timing(good, ARCH.name, ARCH.part, digest, None, 1.0, device="no JSON"),
        Timing(good, ARCH.name, ARCH.part, digest, None, float("inf")),
    )
    code, _, err = gensor_tune("learn")
    assert code == 0 and err.count("left out") == 5
    for reason in ("not in the database", "a-gpu-not-listed", "it is not a valid time"):
        assert reason in err
    assert json.loads(model_in(tmp_path / "k.db")[1].learnt)["left"] == 5


def test_few_timings_teach_an_offset_alone(gensor_tune, tmp_path):
    pytest.importorskip("lightgbm")
    stock(tmp_path / "k.db", sizes=SIZES[:1])
    assert gensor_tune("learn", "--arch", "sm_87")[0] == 0
    model, row = model_in(tmp_path / "k.db")
    assert row.arch == "sm_87" and not model.parts[ARCH.part].trees and 0 < model.parts[ARCH.part].offsets[""] < 0.6


def test_without_lightgbm_it_is_said(gensor_tune, tmp_path, monkeypatch):
    stock(tmp_path / "k.db")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    code, _, err = gensor_tune("learn")
    assert code == 2 and "learning residuals needs LightGBM: pip install 'gensor-kernels[learn]'" in err


def test_a_residual_of_another_version_is_passed_over(tmp_path, caplog):
    row = Residual("", b'{"version":99}')
    assert load.residual_of(row, ARCH) is None and "gensor-tune learn makes another" in caplog.text
    other = Model(("one",), ([0.0],), {}, 0.25)
    assert load.residual_of(Residual("", other.to_json().encode()), ARCH) is None


def against_shared_memory(limit):
    """A model that says of this part: what takes more shared memory than `limit` bytes takes twenty times as long."""
    tree = [FEATURES.index("shared_bytes"), float(limit), 0.0, 3.0]
    return Model(FEATURES, ([tree],), {ARCH.part: Part(1.0, 0.05, {}, (), ARCH.name, ARCH.sms)}, 0.25)


def test_walks_go_by_what_was_learnt():
    wanted = workload(512, 512, 512)
    plain = Space(wanted, ARCH)

    def shared_bytes(space):
        ((program, _),) = walk(space, chains=8, steps=60, keep=1).best
        family = plain.family(program.family)
        return family.explain(family.point(program))["shared_bytes"]

    before = shared_bytes(plain)
    learnt = Learnt(against_shared_memory(before - 1))
    assert shared_bytes(Space(wanted, ARCH, learnt=learnt)) < before
    family = Space(wanted, ARCH, learnt=learnt).families[0]
    points = np.stack([family.point(program) for program in family.family.starters(wanted, ARCH)])
    corrected, features, deviation = family.described(points)
    potential = plain.family(family.family.name).potential(points)
    slow = features[FEATURES.index("shared_bytes")] >= before
    assert corrected == pytest.approx(potential * np.where(slow, np.exp(3.0 - np.sqrt(2) * 0.05), 1.0), rel=1e-5)
    assert deviation == pytest.approx(0.05) and (family.potential(points) == corrected).all()
    assert Space(wanted, ARCH).families[0].described(points)[2] == pytest.approx(ANALYTIC_NOISE)


@pytest.mark.parametrize(
    ("trusted", "arch", "used"), [(True, "sm_87", True), (False, "sm_87", False), (True, "h200", False)]
)
def test_a_run_takes_it_from_a_database_of_its_own_for_parts_it_knows(tmp_path, trusted, arch, used):
    with Store.open(tmp_path / "k.db", trusted=trusted) as store:
        store.add(Residual("", against_shared_memory(1).to_json().encode()))
        assert (Run(lookup(arch), store, Options()).learnt is not None) == used

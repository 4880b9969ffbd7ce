"""The residual model: trees as tables, shared and own trees of a part, plain numbers in and out."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.errors import ToolMissingError
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.residual import (
    BORROWED_NOISE,
    FEATURES,
    SPLITS,
    UNSEEN,
    Forest,
    Learnt,
    Part,
    Residual,
    features,
)
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.learn.fit import UNSEEN_NOISE, Measured, fit

NAMES = ("first", "second", "third")


def random_tree(rng, splits):
    if not splits:
        return float(rng.normal())
    left = int(rng.integers(0, splits))
    return [
        int(rng.integers(0, 3)),
        float(np.float32(rng.normal())),
        *(random_tree(rng, k) for k in (left, splits - 1 - left)),
    ]


def walked(tree, row):
    while not isinstance(tree, float):
        column, threshold, low, high = tree
        tree = high if row[column] > np.float32(threshold) else low
    return tree


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100, 1024, 1025])
def test_a_forest_gives_what_walking_its_trees_gives(count):
    rng = np.random.default_rng(count)
    bags = [[random_tree(rng, int(rng.integers(0, SPLITS + 1))) for _ in range(6)] for _ in range(3)]
    x = rng.normal(size=(3, count)).astype(np.float32)
    expected = [[sum(walked(tree, row) for tree in bag) for row in x.T] for bag in bags]
    np.testing.assert_allclose(Forest.of(bags)(x), expected, rtol=1e-4, atol=1e-5)


def test_a_value_at_a_threshold_goes_to_the_lower_branch():
    x = np.array([[1.0, np.nextafter(np.float32(1), np.float32(2))]], dtype=np.float32)
    assert Forest.of([[[0, 1.0, -5.0, 5.0]]])(x).tolist() == [[-5.0, 5.0]]


def test_a_tree_larger_than_a_table_is_refused():
    with pytest.raises(ValueError, match="9 splits, more than 8"):
        Forest.of([[random_tree(np.random.default_rng(0), 9)]])


def test_levels_add_up():
    part = Part(
        0.25, 0.1, {"": 1.0, "float32": 0.5, "float32/matmul": 0.125}, ([[2, 0.0, 0.0, 3.0]], [[2, 0.0, 0.0, 3.0]])
    )
    model = Residual(NAMES, ([[0, 0.0, 0.0, 8.0]], [[0, 0.0, 0.0, 8.0]]), {"here": part}, 0.3)
    x = np.array([[1, 1, -1], [0, 0, 0], [1, -1, -1]], dtype=np.float32)
    assert model.predict(x, "here", "float32", "matmul")[0].tolist() == [2 + 3 + 1.625, 2 + 1.625, 1.625]
    assert model.predict(x, "here", "float16", "matmul")[0].tolist() == [2 + 3 + 1, 2 + 1, 1]
    mean, doubt = model.predict(x, "elsewhere", "float32", "matmul")
    assert mean == pytest.approx([8 * UNSEEN, 8 * UNSEEN, 0])
    assert doubt == pytest.approx(0.3)


def test_a_correction_abstains_below_its_doubt():
    part = Part(0.25, 0.1, {"": 1.0}, ([[2, 0.0, -0.1, 0.0]],))
    model = Residual(NAMES, ([[0, 0.0, 0.0, 8.0]],), {"here": part}, 0.3)
    x = np.array([[1, -1, -1], [0, 0, 0], [1, 1, -1]], dtype=np.float32)
    # The trees say 2, 0 and -0.1; offsets stand as they are.
    sure = np.sqrt(2) * 0.1
    asked = (x, "here", "float32", "matmul")
    assert model.correction(*asked).tolist() == pytest.approx([3 - sure, 1, 1])
    less = np.sqrt(2) * np.hypot(0.1, BORROWED_NOISE)
    assert model.correction(*asked, borrowed=True).tolist() == pytest.approx([3 - less, 1, 1])
    assert model.correction(x, "elsewhere").tolist() == pytest.approx([8 * UNSEEN - np.sqrt(2) * 0.3, 0, 0])
    certain = Residual(NAMES, model.trees, {"here": replace(part, noise=0.0)}, 0.3)
    assert certain.correction(*asked).tolist() == pytest.approx(certain.predict(*asked)[0].tolist())


def test_a_borrowed_correction_is_smaller():
    arch, kin = lookup("agx-orin-64gb"), lookup("orin-nano-super")
    known = {arch.part: Part(1.0, 0.1, {}, (), arch.name, arch.sms)}
    learnt = Learnt(Residual(FEATURES, ([1.0],), known, 0.3))
    space = FamilySpace(FAMILIES["contraction_simt"], workload(64, 64, 64, dtype="float32"), arch)
    terms = space.terms(space.point(space.family.starters(space.workload, arch)[0])[None])
    own, other = (learnt.seconds(terms, each, "", "") / roofline.seconds(terms, each) for each in (arch, kin))
    assert np.log(own) == pytest.approx(1 - np.sqrt(2) * 0.1, rel=1e-5)
    assert np.log(other) == pytest.approx(1 - np.sqrt(2) * np.hypot(0.1, BORROWED_NOISE), rel=1e-5)


def test_a_part_has_as_many_bags_as_all_parts_have():
    part = Part(0.25, 0.1, {}, ([1.0], [2.0], [3.0]))
    text = Residual(NAMES, ([1.0], [2.0]), {}, 0.3).to_json().replace('"parts":{}', '"parts":%s')
    own = '{"p":{"noise":0.1,"offsets":{},"trees":[[1.0],[2.0],[3.0]],"weight":0.25}}'
    with pytest.raises(ValueError, match="damaged residual"):
        Residual.from_json(text % own)
    with pytest.raises(ValueError, match="argument 2 is"):
        Residual(NAMES, ([1.0], [2.0]), {"p": part}, 0.3)


def test_bags_that_disagree_are_doubt():
    model = Residual(NAMES, ([[0, 0.0, 0.0, 1.0]], [[0, 0.0, 0.0, 3.0]]), {"p": Part(1.0, 0.0)}, 0.3)
    mean, doubt = model.predict(np.array([[-1, 1], [0, 0], [0, 0]], dtype=np.float32), "p")
    assert mean.tolist() == [0, 2] and doubt.tolist() == pytest.approx([0, np.sqrt(2)])


def test_a_bag_without_trees_is_refused():
    with pytest.raises(ValueError, match="no trees"):
        Forest.of([[0.0], []])


@pytest.mark.parametrize(
    ("name", "conditions", "expected"),
    [
        ("agx-orin-64gb", "{}", ("agx-orin-64gb", False)),
        ("agx-orin-64gb", '{"power_mode":"pmode:0003"}', ("agx-orin-64gb", True)),
        ("orin-nano-8gb", '{"power_mode":"pmode:0000"}', ("orin-nano-8gb@pmode:0000", False)),
        ("orin-nano-8gb", "{}", ("orin-nano-8gb@pmode:0000", True)),
        ("orin-nano-super", "{}", ("orin-nano-8gb@pmode:0000", True)),
        ("h200", "{}", ("h200", False)),
    ],
)
def test_a_part_borrows_from_the_nearest_of_its_capability(name, conditions, expected):
    agx, nano = lookup("agx-orin-64gb"), lookup("orin-nano-8gb")
    parts = {
        "agx-orin-64gb": Part(1.0, 0.1, {}, (), agx.name, agx.sms),
        "orin-nano-8gb@pmode:0000": Part(1.0, 0.1, {}, (), nano.name, nano.sms),
    }
    model = Residual(FEATURES, ([0.0],), parts, 0.3)
    assert model.nearest(lookup(name), conditions) == expected
    assert Residual.from_json(model.to_json()).nearest(lookup(name), conditions) == expected


def test_the_number_of_features_is_checked():
    with pytest.raises(ValueError, match="has 3 features, not 2"):
        Residual(NAMES, ([0.0],), {}, 0.3).predict(np.zeros((2, 1), dtype=np.float32), "p")


@pytest.mark.parametrize(
    "change",
    [{"version": 0}, {"parts": None}, {"trees": [[[0, 1.0]]]}, {"names": None}, {"trees": [[[3, 1.0, 0.0, 1.0]]]}],
    ids=lambda c: next(iter(c)),
)
def test_other_texts_are_refused(change):
    body = json.loads(Residual(NAMES, ([0.0],), {}, 0.3).to_json())
    with pytest.raises(ValueError, match=r"residual|unpack|feature"):
        Residual.from_json(json.dumps(body | change))


def test_features_are_finite_and_one_row_each():
    arch, problem = lookup("sm_86"), workload(1000, 1000, 1000, dtype="float32")
    space = FamilySpace(FAMILIES["contraction_simt"], problem, arch)
    points = np.stack([space.point(p) for p in space.family.starters(problem, arch)])
    terms = space.terms(points)
    found = features(terms, arch, {"extra": np.arange(len(points))})
    assert found.shape == (len(FEATURES) + 1, len(points)) and found.dtype == np.float32
    assert np.isfinite(found).all()
    by_name = dict(zip(FEATURES, found, strict=False))
    clocks = np.stack([by_name[name] for name in ("compute", "shared", "l2", "dram")])
    np.testing.assert_allclose(clocks.max(axis=0), 1, rtol=1e-6)
    np.testing.assert_allclose(by_name["registers"], terms.registers)


# ---- learning


def sample(part, count, seed=0, shift=0.0, noise=0.02, dtype="float32"):
    """Rows whose ratio is 0.5 where the first feature is positive, and `shift` everywhere."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, count)).astype(np.float32)
    return Measured(part, dtype, "matmul", x, 0.5 * (x[0] > 0) + shift + noise * rng.normal(size=count))


@pytest.fixture
def learns():
    pytest.importorskip("lightgbm")


def test_what_was_measured_is_learnt(learns):
    model = fit([sample("a", 3000)], NAMES)
    fresh = sample("a", 1000, seed=1, noise=0)
    mean, doubt = model.predict(fresh.x, "a", "float32", "matmul")
    assert np.abs(mean - fresh.y).mean() < 0.02
    assert 0.01 < np.median(doubt) < 0.06


def test_an_unseen_part_gets_a_share_of_it_and_more_doubt(learns):
    model = fit([sample("a", 3000)], NAMES)
    x = np.array([[-1, 1], [0, 0], [0, 0]], dtype=np.float32)
    mean, doubt = model.predict(x, "b")
    known, less = model.predict(x, "a")
    # Offsets belong to a part; the difference carries over.
    assert mean[1] - mean[0] == pytest.approx(UNSEEN * 0.5, abs=0.05)
    assert known[1] - known[0] == pytest.approx(0.5, abs=0.05)
    assert (doubt > less).all()


def test_an_unseen_part_gets_what_held_out_parts_confirm(learns):
    x = np.array([[-1, 1], [0, 0], [0, 0]], dtype=np.float32)
    agreeing = fit([sample("a", 1000), sample("b", 1000, seed=1)], NAMES)
    assert agreeing.unseen.weight > 0.8 and agreeing.unseen.noise < 0.05
    low, high = agreeing.correction(x, "c")
    assert high - low > 0.3
    other = sample("b", 1000, seed=1)
    contrary = fit([sample("a", 1000), Measured("b", "float32", "matmul", other.x, -other.y)], NAMES)
    assert contrary.unseen.weight == 0 and contrary.unseen.noise == pytest.approx(0.25, abs=0.02)
    assert contrary.correction(x, "c").tolist() == [0, 0]
    alone = fit([sample("a", 1000), sample("b", 3, seed=1)], NAMES)
    assert (alone.unseen.weight, alone.unseen.noise) == (UNSEEN, UNSEEN_NOISE)
    assert alone.correction(x, "c").tolist() == [0, 0]


def test_a_text_without_the_weight_of_unseen_parts_has_the_usual_one():
    body = json.loads(Residual(NAMES, ([0.0],), {}, 0.3, 0.75).to_json())
    assert Residual.from_json(json.dumps(body)).unseen.weight == body.pop("unseen_weight") == 0.75
    assert Residual.from_json(json.dumps(body)).unseen.weight == UNSEEN


def test_few_measurements_of_a_part_shift_and_scale_what_another_taught(learns):
    reversed_part = sample("b", 64, seed=2, shift=2.0)
    flat = Measured("c", "float32", "matmul", reversed_part.x, np.full(64, 1.0))
    model = fit([sample("a", 3000), reversed_part, flat], NAMES)
    x = np.array([[-1, 1], [0, 0], [0, 0]], dtype=np.float32)
    same, none = (model.predict(x, part, "float32", "matmul")[0] for part in ("b", "c"))
    assert same == pytest.approx([2.0, 2.5], abs=0.15)
    assert none == pytest.approx([1.0, 1.0], abs=0.2)
    assert model.parts["b"].weight > 0.7 > 0.35 > model.parts["c"].weight


def test_offsets_shrink_towards_the_level_above(learns):
    many, one = sample("a", 400, noise=0), sample("a", 2, shift=1.0, noise=0, dtype="float64")
    offsets = fit([many, one], NAMES).parts["a"].offsets
    assert offsets["float32"] == pytest.approx(0, abs=0.03)
    # Two measurements, each about 1 above the others: 2 / (2 + 8) of it, and then of the rest.
    assert 0.1 < offsets["float64"] < 0.3 and 0.05 < offsets["float64/matmul"] < offsets["float64"]


def test_the_same_measurements_give_the_same_text_and_the_text_the_same_numbers(learns):
    samples = [sample("a", 500), sample("b", 64, seed=3)]
    model = fit(samples, NAMES)
    text = model.to_json()
    assert fit(samples, NAMES).to_json() == text
    again = Residual.from_json(text)
    assert again.to_json() == text
    for part in ("a", "b", "c"):
        for one, other in zip(model.predict(samples[0].x, part), again.predict(samples[0].x, part), strict=True):
            assert (one == other).all()


def test_nothing_measured_is_an_error():
    with pytest.raises(ValueError, match="nothing to learn from"):
        fit([Measured("a", "float32", "matmul", np.zeros((3, 0), np.float32), np.zeros(0))], NAMES)


def test_without_lightgbm_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ToolMissingError, match=r"pip install 'gensor-kernels\[learn\]'"):
        fit([sample("a", 50)], NAMES)

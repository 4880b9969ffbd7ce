"""Element-wise programs: their canonical text, NumPy's meaning of every operation, bounds that hold and that bite."""

import numpy as np
import pytest

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.expression import program as programs
from gensor_kernels.operators.expression.program import ARITY, FLOATS, NUMPY, PREDICATES, TYPES, Step, make, parse
from gensor_kernels.operators.pointwise.views import workload, workload_from_views
from gensor_kernels.operators.tolerance.pointwise import evaluate
from gensor_kernels.operators.types.workload import View, Workload, contiguous

HALF = programs.bits_of(0.5, "f4")


def test_equal_steps_are_one_and_unused_ones_are_left_out():
    steps = [
        Step("const", "f4", (HALF,)),
        Step("mul", "f4", (0, 2)),
        Step("mul", "f4", (2, 0)),
        Step("exp", "f4", (1,)),
        Step("add", "f4", (3, 4)),
    ]
    found = make(("f4", "f4"), steps, 6)
    assert found.text == "in_f4_f4__const_f4_3fe0000000000000__mul_f4_0_2__add_f4_3_3__out_4"
    assert parse(found.text) == found and str(found) == "add(mul(x0, 0.5), mul(x0, 0.5))"


@pytest.mark.parametrize(
    "text",
    [
        "in_f4__out_1",
        "in_f4__exp_f4_1__out_1",
        "in_f4__exp_f8_0__out_1",
        "in_f4__add_f4_0__out_1",
        "in_f4__and_f4_0_0__out_1",
        "in_i4__exp_i4_0__out_1",
        "in_b1__add_b1_0_0__out_1",
        "in_f4_f4__add_f4_1_0__out_2",
        "in_f4__const_f4_10000000000000000__mul_f4_0_1__out_2",
        "in_f4__exp_f4_0__log_f4_0__out_1",
        "in_f4__exp_f4_0__out_1__",
        "in_f4; __exp_f4_0__out_1",
        "in__out_0",
        "in" + "_f4" * 9 + "__out_0",
        "",
    ],
)
def test_a_text_that_is_no_canonical_program_is_refused(text):
    with pytest.raises(UnsupportedError):
        parse(text)


def test_constants_keep_their_bits():
    for code, values in {"f4": [-0.0, np.inf, 1e-320, np.nan], "i8": [2**63 - 1, -(2**63)], "u4": [2**32 - 1]}.items():
        for value in values:
            step = Step("const", code, (programs.bits_of(value, code),))
            found = programs.constant(step)
            assert found == value or value != value
            assert np.signbit(float(found)) == np.signbit(float(value))
            assert parse(make((code,), [step, Step("max", code, (0, 1))], 2).text)


def test_broadcasts_and_merged_axes_are_the_layout_of_a_class():
    add = "in_f4_f4__add_f4_0_1__out_2"
    found = workload(add, [(8, 3, 7, 7), (3, 1, 1)])
    assert found.size == {"i": 1, "j": 8, "k": 3, "l": 49}
    assert (found.layouts["x0"], found.layouts["x1"], found.layouts["y"]) == ("jkl", "k", "jkl")
    assert found.align["x1"] == 4 and found.align["x0"] == 4  # 49 elements follow each other
    assert workload(add, [(8, 3, 7, 7), ()]).layouts["x1"] == "-"
    turned = View((64, 32), (1, 64), "float32")
    each, _ = workload_from_views(
        parse(add), [turned, contiguous((64, 32), "float32")], contiguous((64, 32), "float32")
    )
    assert each.layouts["x0"] == "kls" and each.align["x0"] == 4 and each.align["y"] == 16
    same, _ = workload_from_views(parse(add), [turned, turned], turned)  # all in one order of memory
    assert same.size["l"] == 2048 and same.layouts["x0"] == "l"
    with pytest.raises(UnsupportedError, match="do not merge"):
        workload(add, [(2, 1, 2, 1, 2, 1), (1, 2, 1, 2, 1, 2)])
    with pytest.raises(ValueError, match="no axis"):
        operator("pointwise2").operands(workload(add, [(8,), (8,)]).with_sizes(k=2))


def test_programs_are_part_of_keys_and_of_classes():
    one, other = (workload(f"in_f4__{name}_f4_0__out_1", [(64,)]) for name in ("exp", "log"))
    assert len({one.key(), other.key(), one.class_key(), other.class_key()}) == 4
    assert Workload.from_json(one.key()) == one != other
    with pytest.raises(UnsupportedError, match="no epilogue"):
        one.with_epilogue(["relu"])


OF_NUMPY = [name for name in ARITY if hasattr(np, NUMPY.get(name, name)) and name not in ("cast", "where")]


@pytest.mark.parametrize("code", ["f8", "f4", "i4", "i8", "u1", "u4", "i1", "b1"])
def test_the_reference_has_numpys_meaning(code):
    """Every operation, of numbers of all magnitudes: equal for integers, within the bound for floats of NumPy's own."""
    rng, dtype = np.random.default_rng(3), np.dtype(TYPES[code])
    for name in OF_NUMPY:
        inputs = tuple([code] * ARITY[name])
        try:
            found = make(inputs, [Step(name, code, tuple(range(len(inputs))))], len(inputs))
        except UnsupportedError:
            continue
        operator_ = operator(f"pointwise{len(inputs)}")
        given = workload(found.text, [(500,)] * len(inputs))
        arrays = [
            operator_.draw(given, f"x{index}", rng, (500,)).astype(np.int64 if code not in FLOATS else dtype)
            for index in range(len(inputs))
        ]
        arrays = [each.astype(dtype) for each in arrays]
        with np.errstate(all="ignore"):
            wanted = getattr(np, NUMPY.get(name, name))(*arrays)
        wide = [each.astype(np.float64 if code in FLOATS else np.int64) for each in arrays]
        values, bound = evaluate(found, wide)
        if code not in FLOATS or name in PREDICATES:
            assert np.array_equal(values, wanted.astype(np.float64)) and not bound.any(), name
        else:
            finite = np.isfinite(values)
            assert np.array_equal(np.isnan(values), np.isnan(wanted)), name
            assert (values[~finite] == wanted[~finite])[~np.isnan(values[~finite])].all(), name
            assert (np.abs(values[finite] - wanted[finite]) <= bound[finite]).all(), name
            assert (bound[finite] <= 1e-5 * np.abs(values[finite]) + 1e-5).all(), name


def test_errors_pass_through_a_chain_and_choices_stay_open():
    """float32 arithmetic in another order is within the bound, and a comparison of equal sums is open."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 4000)).astype(np.float32)
    text = "in_f4_f4__mul_f4_0_1__sub_f4_2_1__exp_f4_3__log1p_f4_4__sin_f4_5__div_f4_6_1__tanh_f4_7__out_8"
    values, bound = evaluate(parse(text), [x.astype(float), y.astype(float)])
    found = np.tanh(np.sin(np.log1p(np.exp(x * y - y))) / y)
    error = np.abs(found - values)
    assert (error <= bound).all() and 0.01 < (error / bound).max() <= 1 and bound.max() < 1e-4
    tie = "in_f4_f4__sub_f4_0_1__add_f4_1_2__lt_f4_3_0__where_f4_4_0_1__out_5"
    _, bound = evaluate(parse(tie), [x.astype(float), y.astype(float)])
    assert (bound >= np.abs(x.astype(float) - y)).all()
    far = "in_f4_f4__sub_f4_0_1__lt_f4_2_0__where_f4_3_0_1__out_4"
    assert not evaluate(parse(far), [x.astype(float), y.astype(float)])[1].any()

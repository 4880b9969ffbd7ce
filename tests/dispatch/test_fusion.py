"""gensor_kernels.fuse: what is traced is one launch with NumPy's result, all else the function as it is."""

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.fusion.fused import MOST_KINDS

RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((3, 4, 40)).astype("float32"), RNG.standard_normal((4, 1)).astype("float32")
WHOLE = RNG.integers(-9, 9, (4, 40))


@pytest.fixture(autouse=True)
def emulator():
    with gk.emulated("sm_87"):
        yield


def is_fused(function, *arguments, rtol=2e-6, **named):
    """The result of a function as one launch, next to its own."""
    fused = gk.fuse(function)
    with np.errstate(all="ignore"):
        wanted = function(*arguments, **named)
    found = [fused(*arguments, **named) for _ in range(3)]  # the second and third are warm
    assert None not in fused._kinds.values(), "not traced"
    for each in found:
        assert type(each) is type(wanted)
        pairs = zip(each, wanted, strict=True) if type(wanted) is tuple else [(each, wanted)]
        for one, other in pairs:
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=rtol, atol=rtol)
    return fused


def adam(p, g, m, v, rate=1e-3):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - rate * m / (np.sqrt(v) + 1e-8), m, v


def in_place(x, y):
    t = x * 2
    u = t
    t += y
    t **= 2
    return u - t / 3


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda x, y: np.where(x > y, np.exp(-np.abs(x)), y * 0.5), (X, Y)),
        (lambda x, y: np.clip(x, -0.5, None) + np.minimum(x, y) ** 2 - 1 / (1 + y**2), (X, Y)),
        (in_place, (X, Y)),
        (lambda x: x.astype("float64").clip(0, 1).astype("float16"), (X,)),
        (lambda x, y: (x < y) | ~(x >= 0) ^ np.isfinite(y), (X, Y)),
        (lambda i: i // -4 + i % 3 - (i << 2 >> 1) + (i & 6 | 1), (WHOLE,)),
        (lambda i, x: i * x, (WHOLE, X)),
        (lambda i: i / 3, (WHOLE,)),
        (lambda x: np.round(x * 3) + np.sign(x) - np.floor(-x), (X,)),
        (lambda x: np.zeros_like(x) + x.conj().copy(), (X,)),
        (lambda i: np.logical_and(i, i > 2) + np.logical_not(i), (WHOLE,)),
        (lambda x, k=2.0, *, name="on": x * k if name == "on" else x, (X,)),
        (lambda x: x * np.float64(0.1), (X,)),
        (lambda x, y: x + y, (X.transpose(2, 0, 1), X[0, 0, 0])),
        (adam, (X, -X, X * 2, X * X)),
        (lambda x, y: (x > y, y != x, x == x), (X, Y)),
        (lambda x: (x + 1, np.zeros_like(x), (x + 1).copy()), (X.transpose(2, 0, 1),)),
    ],
)  # fmt: skip
def test_operators_and_functions_are_one_launch(function, arguments):
    is_fused(function, *arguments)


def test_sixteen_bits_are_rounded_once():
    half, wide = X.astype("float16"), X.astype(ml_dtypes.bfloat16)
    is_fused(lambda x: np.sqrt(x * x + 1), half, rtol=2e-3)
    is_fused(lambda x: x * 2 + 1, wide, rtol=2e-2)
    found = gk.fuse(lambda x: x * 3000 * 3000 / 3000 / 3000)(half)
    assert np.isfinite(found).all() and np.allclose(found, half, rtol=2e-3)


def test_arguments_by_name_and_other_numbers_are_kinds_of_their_own():
    fused = gk.fuse(lambda x, y, rate=1.0: x * rate + y)
    for rate in (1.0, 2.0, 2):
        np.testing.assert_allclose(fused(X, y=Y, rate=rate), X * rate + Y, rtol=1e-6)
    assert len(fused._kinds) == 3
    assert fused.__wrapped__ is fused.function


def reduces(x):
    return x.sum(axis=0) + 1


def branches(x):
    return x + 1 if x[0, 0, 0] > 0 else x - 1


def changes(x):
    x += 1
    return x


def doubles(x):
    y = x * 2
    return y, y


def swallows(x):
    try:
        return np.exp(x).reshape(-1)[0] * x
    except Exception:
        return x * 2


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (reduces, (X,)),
        (branches, (X,)),
        (changes, (X.copy(),)),
        (swallows, (X,)),
        (lambda x: (x, x + 1), (X,)),
        (lambda x: (x + 1, x.astype("float64")), (X,)),
        (lambda x: tuple(x + n for n in range(1, 6)), (X,)),
        (lambda x: [x + 1, x + 2], (X,)),
        (lambda x, y: x * 2, (Y, X)),
        (lambda x, y: (x * 2, x * y), (Y, X)),
        (doubles, (X,)),
        (lambda x: x, (X,)),
        (lambda x: x + Y, (X,)),
        (lambda x: x.T + 1, (X,)),
        (lambda x: np.add(x, 1, out=np.empty_like(X)), (X,)),
        (lambda x: x + 1, (X.astype("complex64"),)),
        (lambda x: x + 1, (X.astype("uint16"),)),
        (lambda x: 3, (X,)),
        (lambda x, k: x + k["a"], (X, {"a": 1})),
    ],
)
def test_what_cannot_be_traced_is_called_as_it_is_written(function, arguments):
    fused = gk.fuse(function)
    for _ in range(3):
        copied = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
        wanted, found = function(*copied), fused(*arguments if function is not changes else copied)
        if function is not changes:
            assert type(wanted) is type(found)
            for one, other in zip(found, wanted, strict=True) if type(found) in (tuple, list) else [(found, wanted)]:
                assert np.shape(one) == np.shape(other) and np.all(np.asarray(one) == np.asarray(other))
            assert function is not doubles or found[0] is found[1]
        else:
            assert found is copied[0]
    assert set(fused._kinds.values()) <= {None}


def test_errors_are_those_of_the_function():
    fused = gk.fuse(lambda x, y: x + y)
    with pytest.raises(ValueError, match="broadcast"):
        fused(X, np.ones(7, "float32"))
    with pytest.raises(TypeError, match="fuse takes a function"):
        gk.fuse(3)


def test_ever_new_numbers_are_traced_up_to_a_bound():
    fused = gk.fuse(lambda x, k: x * k)
    fused._kinds.update(dict.fromkeys(range(MOST_KINDS)))
    assert fused(X, 3.0)[0, 0, 0] == X[0, 0, 0] * 3 and len(fused._kinds) == MOST_KINDS


def test_no_array_of_a_call_stays_alive():
    fused, x = gk.fuse(lambda x: x * 2), X.copy()
    fused(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_arrays_of_no_device_are_the_functions_own_and_tell_nothing_of_later_calls(monkeypatch):
    fused = gk.fuse(lambda x: x * 2)
    with monkeypatch.context() as patch:
        patch.setattr(type(current_runtime().device), "is_array", lambda self, value: False)
        assert (fused(X) == X * 2).all() and not fused._kinds
    assert (fused(X) == X * 2).all() and None not in fused._kinds.values() and fused._is_direct


def test_calls_are_recorded_and_explained(tmp_path):
    fused = gk.fuse(lambda x, y: np.exp(x - y))
    with gk.record(tmp_path / "shapes.csv"):
        fused(X, Y)
    text = (tmp_path / "shapes.csv").read_text()
    assert "pointwise2" in text and "in_f4_f4__sub_f4_0_1__exp_f4_2__out_3" in text
    assert "pointwise" in str(gk.explain(fused, X, Y))


def test_zeros_of_both_signs_are_other_constants():
    fused, x = gk.fuse(lambda x, scale: x * scale), np.ones((2, 8), np.float32)
    for zero in (0.0, -0.0, np.float32(0.0), np.float32(-0.0), 0.0):
        assert (np.signbit(fused(x, zero)) == np.signbit(zero)).all()
    assert len(fused._kinds) == 4 and None not in fused._kinds.values()

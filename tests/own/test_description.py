"""Descriptions of users' kernels: expressions, knobs, T1 files, and the errors that a user meets."""

import json

import numpy as np
import pytest

from gensor_kernels.errors import ConfigError
from gensor_kernels.own import In, InOut, Kernel, Out, Scalar, from_t1
from gensor_kernels.own.configuration import bind
from gensor_kernels.own.description import Description
from gensor_kernels.own.expressions import evaluate, extents
from tests.own.faults import EXAMPLES, KERNELS

TEXT = 'extern "C" __global__ void scale(float *x) { x[blockIdx.x * threads + threadIdx.x] *= 2; }'


def kernel(**given: object) -> Kernel:
    usual = {"knobs": {"threads": [64, 128]}, "block": "threads", "grid": "n // threads", "args": [InOut("f4", "n")]}
    return Kernel(TEXT, "scale", **{**usual, **given})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a * b <= 12 and not b == 3", [True, True, False]),
        ("1 <= b <= 2 or a in (9, 3)", [True, True, False]),
        ("a - 4 if a - 4 > b else -b", [-1, -2, -3]),
        ("min(a, b, 2) + max(b, 2) % 3", [3, 4, 2]),
        ("ceil_div(a * 7, 2) // 1", [14, 14, 14]),
    ],
)
def test_expressions_of_arrays_are_those_of_numbers(text: str, value: list):
    b = np.array([1, 2, 3])
    assert np.broadcast_to(evaluate(text, {"a": 4, "b": b}), 3).tolist() == value
    assert [evaluate(text, {"a": 4, "b": int(each)}) for each in b] == value


def test_functions_are_traced_into_texts():
    traced = extents(lambda p, n: (-(-n.w // (p.tile * 2)), 1 + n["h"], 2), ["tile"])
    assert [evaluate(text, {"w": 33, "h": 4, "tile": 8}) for text in traced] == [3, 5, 2]
    with pytest.raises(ConfigError, match=r"the knob 'tiles' is unknown: did you mean tile\?"):
        extents(lambda p: p.tiles, ["tile"])
    with pytest.raises(ConfigError, match="write the condition as a text"):
        extents(lambda p: 1 if p.tile > 3 else 2, ["tile"])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"knobs": {"threads": []}}, "the knob threads has no values"),
        ({"knobs": {"threads": [64, 64]}}, "the knob threads has a value twice: 64, 64"),
        ({"knobs": {"threads": [64, "x"]}}, "values of several kinds: 64, 'x'"),
        ({"knobs": {"1st": [64]}}, "'1st' is no name of a macro"),
        ({"args": [In("f4", "n")]}, "scale writes nothing"),
        ({"grid": "n //"}, "'n //' is no expression: invalid syntax"),
        ({"grid": "__import__('os')"}, "calls something else than min, max"),
        ({"restrictions": ["threads.real > 3"]}, "has attribute, which an expression may not have"),
        ({"block": (1, 2, 3, 4)}, "a launch has at most 3 extents, not 4"),
        ({"constants": {"c": Scalar("f4", 1)}}, "the constant c is a Scalar"),
        (
            {"knobs": {"threads": [64], "unrol": [1, 2]}},
            "the knob unrol is read neither by the source nor by",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict, reason: str):
    with pytest.raises(ConfigError, match=reason):
        made = kernel(**given)
        made.description.launch({"n": 64, "threads": 64})


def test_names_and_files_that_do_not_exist(tmp_path):
    with pytest.raises(ConfigError, match=r"an argument of \|S4 is not supported"):
        InOut("S4", "n")
    with pytest.raises(ConfigError, match="the source has no scales"):
        Kernel(TEXT, "scales", knobs={"threads": [64]}, block=1, grid=1, args=[InOut("f4", 1)])
    with pytest.raises(ConfigError, match=r"the source .*none.cu cannot be read: No such file"):
        Kernel(tmp_path / "none.cu", "scale", knobs={"threads": [64]}, block=1, grid=1, args=[InOut("f4", 1)])


def test_quoted_includes_are_part_of_the_source(tmp_path):
    (tmp_path / "head.cuh").write_text("constexpr int more = 3;\n")
    (tmp_path / "kernel.cu").write_text(f'#include "head.cuh"\n#include <cstdint>\n{TEXT}')
    made = Kernel(tmp_path / "kernel.cu", "scale", knobs={"threads": [64]}, block=1, grid=1, args=[InOut("f4", 1)])
    begin, more, line, _, back, rest = made.source.splitlines()[:6]
    assert (begin, more, line) == ('#line 1 "kernel.cu"', '#line 1 "head.cuh"', "constexpr int more = 3;")
    assert (back, rest) == ('#line 2 "kernel.cu"', "#include <cstdint>")


def test_descriptions_are_values():
    for each in (value for value in KERNELS.values() if isinstance(value, Kernel)):
        assert Description.from_json(each.description.to_json()) == each.description
    with pytest.raises(ConfigError, match="not a user's kernel"):
        Description.from_json('{"own": {"name": "x"}}')


def test_knobs_stand_in_name_expressions_and_options_in_the_first_line():
    made = kernel(options=["--use_fast_math"])
    assert bind(made.description, made.source, {"threads": 64}).startswith(
        '//own {"options": ["--use_fast_math"]}\n#define threads 64\n#line 1 "kernel.cu"\n'
    )
    templated = Kernel(
        "template <int N> __global__ void t(int *x) {}",
        "t<side>",
        knobs={"side": [4]},
        block=1,
        grid=1,
        args=[Out("i4", 1)],
    )
    assert bind(templated.description, templated.source, {"side": 4}).startswith('//own {"name": "t<4>"}\n')


def test_t1_files(tmp_path):
    made = from_t1(EXAMPLES / "convolution.json")
    described = made.description
    assert made.sizes == {"problem_size_x": 4096, "problem_size_y": 4096} and described.sizes == tuple(made.sizes)
    assert [(each.role, each.dtype) for each in described.arguments] == [
        ("out", "float32"),
        ("in", "float32"),
        ("scalar", "int32"),
        ("scalar", "int32"),
    ]
    assert described.restrictions[1] == "use_padding == 0  or  block_size_x % 32 != 0"
    assert described.launch({**made.sizes, **dict.fromkeys(dict(described.knobs), 16)})[0] == (16, 16, 1)
    body = json.loads((EXAMPLES / "convolution.json").read_text())
    for change, reason in (
        (lambda k, s: k.update(Language="OpenCL"), "Language is OpenCL, not CUDA"),
        (lambda k, s: s.update(TuningParameters="knobs"), "TuningParameters of a T1 file is a list"),
        (lambda k, s: k["Arguments"][0].update(Type="texture"), "the argument out has the type texture"),
        (lambda k, s: k["Arguments"][0].update(AccessType="Twice"), "the argument out has the access Twice"),
    ):
        other = json.loads(json.dumps(body))
        change(other["KernelSpecification"], other["ConfigurationSpace"])
        (tmp_path / "other.json").write_text(json.dumps(other))
        with pytest.raises(ConfigError, match=reason):
            from_t1(tmp_path / "other.json")
    with pytest.raises(ConfigError, match="a T1 file has an object ConfigurationSpace"):
        (tmp_path / "other.json").write_text("[]")
        from_t1(tmp_path / "other.json")

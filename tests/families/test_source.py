"""flatten, bind and digest: one deterministic text per Program."""

import pytest

from gensor_kernels.families.core import source


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "k.cu").write_text(
        "#ifndef BLOCK_M\n#define BLOCK_M 64  // rows of C per block\n#endif\n"
        '#include "a.cuh"\n#include "b.cuh"\n#include <stddef.h>\n#include "host.h"\nint tail;\n'
    )
    (tmp_path / "a.cuh").write_text('#pragma once\n#include "b.cuh"\nint a;\n')
    (tmp_path / "b.cuh").write_text("#pragma once\nint b;\n")
    return tmp_path


def test_a_header_in_a_branch_may_not_be_needed_elsewhere(folder):
    (folder / "x.cu").write_text('#ifdef HOST\n#include "b.cuh"\n#endif\nint x;\n')
    assert "int b;" in source.flatten("x.cu", folder)
    (folder / "y.cu").write_text('#ifdef HOST\n#include "b.cuh"\n#endif\n#include "b.cuh"\n')
    with pytest.raises(ValueError, match=r"y\.cu\(4\): b\.cuh"):
        source.flatten("y.cu", folder)


def test_a_parameter_is_declared_in_one_line(folder):
    (folder / "p.cu").write_text('#pragma parameter ROWS 4 // of C\n#include "b.cuh"\nint p;\n')
    text = source.flatten("p.cu", folder)
    assert source.parameters(text) == {"ROWS"} and "#define ROWS 4 // of C\n#endif\n#line 2" in text
    assert (
        source.code(text)
        == "// ---- p.cu\n#ifndef ROWS\n#define ROWS 4\n#endif\n// ---- b.cuh\nint b;\n// ---- p.cu\nint p;\n"
    )
    for wrong in ("#pragma parameter ROWS", "#pragma parameter ROWS 4 \\\n  // of C"):
        (folder / "w.cu").write_text(f"{wrong}\n")
        with pytest.raises(ValueError, match=r"w\.cu\(1\): expected one line"):
            source.flatten("w.cu", folder)


def test_bind_sorts_and_keeps_the_text(folder):
    (folder / "t.cu").write_text("#ifndef BLOCK_M\n#endif\n#ifndef IN_TYPE\n#endif\n#ifndef SHIFT\n#endif\n")
    text = source.flatten("t.cu", folder)
    bound = source.bind(text, {"SHIFT": -3, "IN_TYPE": "half_t", "BLOCK_M": 128})
    assert bound == "#define BLOCK_M 128\n#define IN_TYPE half_t\n#define SHIFT (-3)\n" + text
    assert source.bind(text, {"BLOCK_M": True}).startswith("#define BLOCK_M 1\n")


def test_bind_refuses_values_that_are_no_constants(folder):
    text = source.flatten("k.cu", folder)
    for constants in (
        {"BLOCK_N": 1},
        {"BLOCK_M": '1\n#include "/etc/passwd"'},
        {"BLOCK_M": "half_t\n"},
        {"BLOCK_M": ""},
        {"BLOCK_M": "f(x)"},
        {"BLOCK_M": 2**63},
        {"BLOCK_M": 1.5},
    ):
        with pytest.raises(ValueError):
            source.bind(text, constants)

"""From a user's kernel to a database and back: tuned, stored, exported, loaded, launched."""

import json
from dataclasses import replace

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import own
from gensor_kernels.errors import BuildError, ConfigError, UnsupportedError
from gensor_kernels.machine.arch import lookup
from gensor_tuner.own.space import OwnSpace
from gensor_tuner.own.tune import OwnError
from tests.own.faults import EXAMPLES, KERNELS

pytestmark = pytest.mark.usefixtures("needs_emulator")  # PTX is compiled by g++

SCALE = """extern "C" __global__ void scale(float *out, const float *in, int n, float by) {
    for (int i = (blockIdx.x * threads + threadIdx.x) * each; i < n; i += gridDim.x * threads * each)
#pragma unroll
        for (int k = 0; k < each; k++)
            if (i + k < n)
                out[i + k] = by * in[i + k];
}"""


def scale(text: str = SCALE, **given: object) -> own.Kernel:
    usual = {"knobs": {"threads": [64, 128], "each": [1, 4]}, "block": "threads", "grid": 4}
    arguments = [own.Out("f4", "n"), own.In("f4", "n"), own.Scalar("i4", "n"), own.Scalar("f4", 3)]
    return own.Kernel(text, "scale", **{**usual, "args": arguments, **given})


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    best = scale().tune("orin-nano-8gb", {"n": 1000}, lambda x: 3 * x, keep=3)
    path = tmp_path_factory.mktemp("own") / "scale.db"
    best.save(path)
    return best, path


def test_configurations_are_verified_and_ordered(tuned):
    best, _ = tuned
    times = [each.predicted_us for each in best.found]
    assert (best.tried, len(best.found), best.failed, dict(best.refused)) == (4, 3, (), {})
    assert times == sorted(times) and all(each.verdict.worst <= 1 for each in best.found)
    assert str(best).splitlines()[0].split() == ["configuration", "predicted", "limit", "error"]
    assert best.explain()["limit"] in ("latency", "dram", "l2", "alu", "issue", "shared", "fma")


def test_a_database_is_loaded_and_launched(tuned):
    _, path = tuned
    loaded = own.load(path)
    x = np.arange(777, dtype=np.float32)
    out = np.zeros_like(x)
    with gensor_kernels.emulated("sm_87"):
        loaded(out, x, 777, 3.0)
        assert np.array_equal(out, 3 * x)
        loaded(out, x, 777, 0.5)
        assert np.array_equal(out, x / 2)
        for arguments, error, reason in (
            ((out, x, 778, 3.0), ValueError, "argument 0 of scale has 778 elements, not 777"),
            ((out, x.astype("f8"), 777, 3.0), TypeError, "argument 1 of scale is float32, not float64"),
            ((out, x.tolist(), 777, 3.0), TypeError, "argument 1 of scale is an array, not list"),
            ((out[::2], x, 777, 3.0), ValueError, "argument 0 of scale is not C-contiguous"),
            ((out, x), ValueError, "scale takes 4 arguments, not 2"),
        ):
            with pytest.raises(error, match=reason):
                loaded(*arguments)
        with pytest.raises(ConfigError, match="scale has no constant filter: it has none"):
            loaded.constants(filter=x)
    with gensor_kernels.emulated("sm_90"), pytest.raises(UnsupportedError, match="no configuration of scale for sm_90"):
        loaded(out, x, 777, 3.0)


def test_a_configuration_that_cannot_be_launched_leaves_its_place_to_another(tmp_path):
    text = SCALE.replace("gridDim.x * threads * each", "n")
    kernel = scale(text, knobs={"threads": [32, 64], "each": [1]}, grid="n // threads")
    kernel.tune("orin-nano-8gb", {"n": 1024}, lambda x: 3 * x, keep=2).save(tmp_path / "scale.db")
    x, loaded = np.arange(32, dtype=np.float32), own.load(tmp_path / "scale.db")
    out = np.zeros_like(x)
    with gensor_kernels.emulated("sm_87"):
        loaded(out, x, 32, 3.0)
        assert np.array_equal(out, 3 * x)
        with pytest.raises(UnsupportedError, match=r"no stored configuration of scale can be launched at \{'n': 8\}"):
            loaded(out[:8], x[:8], 8, 3.0)


def test_restrictions_hold_at_other_sizes(tmp_path):
    """A block of whole tiles, as it would be with 96 elements and tiles of 64, leaves the rest unwritten."""
    text = SCALE.replace("i < n; i +=", "i < n / (threads * each) * (threads * each); i +=")
    kernel = scale(text, knobs={"threads": [32, 64], "each": [1]}, restrictions=["n % threads == 0"])
    best = kernel.tune("orin-nano-8gb", {"n": 1024}, lambda x: 3 * x, check_at={"n": 96}, keep=2, measure="never")
    assert {each.verdict.sizes["n"] for each in best.found} == {96, 192}
    best.save(tmp_path / "scale.db")
    x, loaded = np.arange(96, dtype=np.float32), own.load(tmp_path / "scale.db")
    out = np.zeros_like(x)
    with gensor_kernels.emulated("sm_87"):
        loaded(out, x, 96, 3.0)
        assert np.array_equal(out, 3 * x)
        with pytest.raises(UnsupportedError, match=r"can be launched at \{'n': 40\}"):
            loaded(out[:40], x[:40], 40, 3.0)


def test_only_the_one_kernel_of_a_database_is_loaded(tuned, tmp_path):
    best, path = tuned
    with pytest.raises(ConfigError, match="has not one kernel other: it has scale"):
        own.load(path, "other")
    best.save(tmp_path / "again.db")
    best.save(tmp_path / "again.db")
    assert own.load(tmp_path / "again.db", "scale").description == best.description


def test_databases_are_checked_and_shown(gensor_tune, tuned, tmp_path):
    best, _ = tuned
    best.save(tmp_path / "scale.db")
    code, out, err = gensor_tune("verify", "--db", "{}/scale.db", "--rebuild")
    assert code == 0 and out.count(" ok") == 3 and "3 ok" in err, (out, err)
    code, out, _ = gensor_tune("refresh", "--db", "{}/scale.db")
    assert code == 0 and out.count("current") == 3, out
    _, out, _ = gensor_tune("show", "--db", "{}/scale.db")
    assert "scale" in out and "n=1000" in out, out


def test_t4_files(tuned, tmp_path):
    best, _ = tuned
    best.to_t4(tmp_path / "scale.json")
    body = json.loads((tmp_path / "scale.json").read_text())
    assert body["schema_version"] == "1.0.0"
    assert [row["configuration"] for row in body["results"]] == [each.knobs for each in best.found]
    assert {row["invalidity"] for row in body["results"]} == {"correct"}
    assert body["results"][0]["measurements"] == [
        {"name": "predicted_us", "value": best.found[0].predicted_us, "unit": "us"}
    ]


def test_large_spaces_are_walked():
    knobs = {"threads": [32, 64, 96, 128, 160, 192, 224, 256], "each": [1, 2, 3, 4, 5, 6, 7, 8]}
    best = scale(knobs=knobs).tune("orin-nano-8gb", {"n": 100_000}, lambda x: 3 * x, keep=1, budget=12)
    assert best.tried <= 12 and best.found[0].verdict.outcome == "ok"


@pytest.mark.parametrize(
    ("kernel", "error", "reason"),
    [
        (
            scale(SCALE.replace("by *", "by +")),
            OwnError,
            r"^scale with threads=\d+ each=\d gives wrong results at n=100: array 0: element \(\d+\) is",
        ),
        (scale(SCALE.replace("out[i", "out[1 + i")), OwnError, "fails at n=100: out_of_bounds: .* line 6 by thread"),
        (
            scale(SCALE.replace("out[i", "out[1000 + i")),  # no configuration can be counted
            OwnError,
            r"fails at n=100: out_of_bounds: .*\(byte 4\d\d\d of argument 0, which has 400\), at line 6 by thread",
        ),
        (scale(args=[own.Out("f4", "n"), own.In("f4", "n")]), OwnError, "scale has 4 parameters, args describes 2$"),
        (
            scale(SCALE.replace("out[i + k] =", "out[i + k]")),
            BuildError,
            r"^no configuration of scale can be built: kernel\.cu\(6\): error: [^\n]*, at 'out[^\n]*'$",
        ),
        (
            scale(restrictions=["threads > 999"]),
            BuildError,
            "built: restrictions and the limits of a block leave none",
        ),
    ],
)
def test_kernels_without_a_configuration(kernel: own.Kernel, error: type, reason: str):
    with pytest.raises(error, match=reason):
        kernel.tune("orin-nano-8gb", {"n": 100}, lambda x: 3 * x, keep=1)


def test_a_kernel_that_never_ends_is_bounded(monkeypatch):
    monkeypatch.setattr("gensor_tuner.own.counts.MOST_STEPS", 100_000)
    text = SCALE.replace("if (i + k < n)", "for (int j = 1; j != 0; j += 2)")
    endless = scale(text, knobs={"threads": [32, 64, 96, 128], "each": [1, 2, 3, 4]})
    reason = (
        r"^scale with threads=\d+ each=\d warp 0 of block 0 takes more than 100000 instructions, \d+ of them in a "
        r"loop of \d+ \(.*BRA.*\): it never ends, or is to be counted at smaller sizes \(count_at\)$"
    )
    with pytest.raises(BuildError, match=reason):
        endless.tune("orin-nano-8gb", {"n": 100}, lambda x: 3 * x, keep=1)


def test_a_configuration_that_never_ends_is_left_out(monkeypatch):
    monkeypatch.setattr("gensor_tuner.own.counts.MOST_STEPS", 100_000)
    text = SCALE.replace("    for (int i", "for (int j = 1; threads == 64 && j; j += 2) out[0] = j;\n    for (int i")
    best = scale(text).tune("orin-nano-8gb", {"n": 100}, lambda x: 3 * x)
    assert {each.knobs["threads"] for each in best.found} == {128} and len(best.refused) == 2
    assert all(reason.startswith("with threads=64 each=") for reason in best.refused)


def test_sizes_that_do_not_fit():
    for sizes, reason in (
        ({}, "the size n is missing: the description reads n"),
        ({"n": 8, "m": 9}, "there is no size m: the description reads n"),
        ({"n": 0}, "the size n is 0, not a positive whole number"),
    ):
        with pytest.raises(ConfigError, match=reason):
            scale().tune("sm_87", sizes, lambda x: x)
    with pytest.raises(ConfigError, match=r"thread is missing: did you mean threads\? the description reads n, thread"):
        scale(block="thread").tune("sm_87", {"n": 8}, lambda x: x)
    with pytest.raises(UnsupportedError, match="scale calls printf, which is not counted: compile without it"):
        text = SCALE.replace("    for (int i", '    printf("%d", n);\n    for (int i')
        scale(text).tune("orin-nano-8gb", {"n": 8}, lambda x: 3 * x)


def test_a_value_that_does_not_compile_is_left_out():
    text = SCALE.replace("for (int i", 'static_assert(threads != 64, "no 64");\n    for (int i')
    best = scale(text).tune("orin-nano-8gb", {"n": 100}, lambda x: 3 * x, keep=1)
    assert best.knobs["threads"] == 128 and sum(best.refused.values()) == 2
    assert any("no 64" in reason for reason in best.refused)


def test_counts_are_shared_between_block_sizes():
    text = SCALE.replace("threads", "blockDim.x")
    space = OwnSpace(scale(text).description, text, {"n": 1000}, lookup("sm_87"))
    space.potential(np.array(space.enumerated(10)))
    assert len(space.built) == 4 and len(space._prepared) == 2


def test_blocks_that_read_more_than_the_l2_wait_for_dram():
    arch, clocks = lookup("sm_87"), []
    for megabytes in (arch.l2_mb, 1e-3):
        space = OwnSpace(scale().description, SCALE, {"n": 10_000}, replace(arch, l2_mb=megabytes))
        space.potential(np.array(space.enumerated(10)))
        clocks.append(np.array([each.counted.clocks for each in space.built.values()]))
    assert (clocks[1] - clocks[0] >= 0.9 * (arch.dram_latency - arch.l2_latency)).all()


def test_the_command(gensor_tune, tmp_path):
    kernel, reference = (f"{EXAMPLES / 'kernels.py'}:{name}" for name in ("transpose", "transposed"))
    rest = ["--arch", "orin-nano-8gb", "--db", "{}/t.db", "--keep", "1", "--t4", "{}/t.json"]
    code, out, err = gensor_tune("own", kernel, "--reference", reference, "--size", "w=256", "--size", "h=256", *rest)
    assert code == 0, err
    assert "best on orin-nano-8gb: " in out and "expected by times of two other kernels), limited by " in out
    assert own.load(tmp_path / "t.db").description == KERNELS["transpose"].description
    misspelt = tmp_path / "misspelt.py"
    misspelt.write_text("from gensor_kernels.own import Kernel\nkernel = Kernel(args=[In('f4', 1)])\n")
    for given, reason in (
        ([kernel, "--reference", reference], "the size h is missing: the description reads h, w"),
        ([kernel, "--reference", "lambda"], "the reference is given as FILE.py:NAME, not 'lambda'"),
        ([f"{misspelt}:kernel", "--reference", reference], "py cannot be run: NameError at line 2: name 'In' is not"),
        ([reference, "--reference", reference], "is a function, not a gensor_kernels.own.Kernel"),
        ([kernel, "--reference", reference, "--size", "w"], "a size is given as NAME=NUMBER, not 'w'"),
    ):
        code, _, err = gensor_tune("own", *given, *rest)
        assert code == 2 and reason in err, err

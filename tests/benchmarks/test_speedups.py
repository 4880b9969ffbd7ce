"""The picture of the README is that of the committed timings, and so are the figures next to it."""

import pytest

from benchmarks import speedups
from benchmarks.gpu.summary import geometric_mean
from tests.project.test_docs import README

RESULTS = (speedups.MEASURED.parent / "README.md").read_text(encoding="utf-8")


def test_the_picture_is_that_of_the_timings():
    assert speedups.PICTURE.read_text(encoding="utf-8") == speedups.picture()


NAMES = {
    "cupy": "CuPy's call, or its composition",
    "cublaslt": "cuBLASLt's best of eight",
    "torch": "PyTorch",
    "flash": "PyTorch's flash attention",
    "cudnn": "cuDNN's",
}


@pytest.mark.parametrize("vendor", NAMES)
def test_figures_in_tables_are_those_of_the_timings(vendor):
    ratios = [each.ratios[vendor] for each in speedups.measured() if vendor in each.ratios]
    (row,) = (line for line in RESULTS.splitlines() if f"| {NAMES[vendor]} |" in line)
    count, _, mean, wins, worst = (cell.strip() for cell in row.strip("|").split("|"))
    assert int(count.split()[0]) == len(ratios) and int(wins.split()[0]) == sum(ratio > 1 for ratio in ratios)
    assert mean == f"{geometric_mean(ratios):.2f}" and worst.endswith(f"{min(ratios):.2f}")


def test_the_readme_states_the_whole_means():
    """The first paragraphs have CuPy's and cuBLASLt's means and PyTorch's, as the results have them."""
    opening = README.partition("\n## ")[0]
    for vendor, digits in (("cupy", 1), ("cublaslt", 2), ("torch", 2)):
        mean = geometric_mean(each.ratios[vendor] for each in speedups.measured() if vendor in each.ratios)
        assert f"{mean:.{digits}f}" in opening, vendor


def test_every_class_has_its_operators():
    def key(operator, dtype="float16", math="ieee", epilogue=()):
        return {"operator": operator, "dtypes": {"a": dtype}, "math": math, "epilogue": list(epilogue)}

    assert speedups.operators_of(key("attention_paged")) == "attention"
    assert speedups.operators_of(key("depthwise_conv2d")) == "convolutions"
    assert speedups.operators_of(key("matmul", epilogue=["bias"])) == "fused products"
    assert speedups.operators_of(key("geglu")) == "fused products"
    assert speedups.operators_of(key("matmul", "float32", "tf32")) == "TF32, float64 products"
    assert speedups.operators_of(key("matmul", "float32")) == "float32 products"
    assert speedups.operators_of(key("rmsnorm")) == "softmax, norms, reductions"
    assert len(speedups.means()) == 9

"""The table of hardware facts: every number sourced, products equal to published peaks; operands against memory."""

import csv
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from gensor_kernels.errors import UnknownArchError
from gensor_kernels.machine.arch import RATES, archs, capability_name, lookup, stored, table
from gensor_kernels.machine.attributes import from_attributes
from gensor_kernels.machine.memory import too_large
from gensor_kernels.operators.products import matmul, quantised

#: dense peaks of data sheets and whitepapers, TFLOP/s or TOP/s
PUBLISHED = Path(__file__).with_name("published_peaks.csv").read_text(encoding="utf-8").splitlines()[1:]


def test_rates_reproduce_published_peaks():
    for part, dtype, math, published in csv.reader(PUBLISHED):
        assert lookup(part).peak(dtype, math) / 1e12 == pytest.approx(float(published), rel=0.03), (part, dtype, math)


def test_rates_of_float_products_follow_the_capability():
    assert lookup("a100-40gb").fastest("float32") == pytest.approx(312e12 / 6, rel=0.03)
    assert lookup("h100-sxm").fastest("float32") == pytest.approx(989e12 / 6, rel=0.03)
    for part in ("t4", "rtx-3090", "rtx-4090", "a10", "l4", "rtx-5090"):
        assert lookup(part).fastest("float32") == lookup(part).peak("float32")
    # Short sums are left to multiply-adds.
    assert lookup("a100-40gb").fastest("float32", terms=383) == lookup("a100-40gb").peak("float32")
    assert lookup("a100-40gb").fastest("float32", "tf32") == lookup("a100-40gb").peak("float32", "tf32")
    for arch in archs():
        slower = arch.rate("peak_f16") > arch.rate("mma_f16")
        assert slower == (arch.name in ("sm_90", "sm_100")), arch.part
    t4 = lookup("t4")
    assert t4.peak("bfloat16") == t4.peak("float32") < t4.peak("float16")
    assert "cp_async" not in t4.features


def test_every_number_has_a_source_beside_it_and_estimates_are_marked_unsure():
    text = resources.files("gensor_kernels.machine").joinpath("archs.toml").read_text(encoding="utf-8")
    numbers = [line for line in text.splitlines() if re.match(r"\w+ = [0-9]", line)]
    assert len(numbers) > 200
    assert [line for line in numbers if not re.search(r"#\s*\S{3,}", line)] == []
    for section in re.split(r"\n(?=\[)", text)[1:]:
        estimated = set(re.findall(r"^(\w+) = .*#\s*\[est\]", section, flags=re.M))
        unsure = re.search(r"^unsure = \[(.*)\]", section, flags=re.M)
        marked = set(re.findall(r'"(\w+)"', unsure[1])) if unsure else set()
        assert estimated <= marked, section.splitlines()[0]
    for arch in archs():
        for name in arch.unsure:
            assert hasattr(arch, name) or name in RATES, (arch.part, name)


def test_capabilities_have_their_default_parts():
    assert {arch.name for arch in archs()} == {f"sm_{x}" for x in (75, 80, 86, 87, 89, 90, 100, 120)}
    assert lookup("sm_87") is lookup("orin-nano-8gb")
    assert lookup("sm_90").target == "sm_90a"
    assert lookup("sm_89").capability == (8, 9)
    assert lookup("sm_120").capability == (12, 0)
    assert len(set(archs())) == len(archs()) == len({arch.part for arch in archs()})


SPELT = {
    "orin-nano-8gb": ("sm_87", "SM87", "sm87", "87", "8.7", "compute_87", "cc 8.7", "Orin-Nano-8GB", "orin_nano_8gb"),
    "h100-sxm": ("sm_90a", "H100 SXM", " 90 ", "NVIDIA H100 80GB HBM3"),
    "h100-pcie": ("H100 PCIe", "nvidia-h100-pcie"),
    "rtx-3090": ("RTX 3090", "rtx3090", "RTX-3090", "GeForce RTX 3090", "nvidia geforce rtx 3090"),
    "rtx-5090": ("120", "12.0", "sm_120"),
    "a100-80gb": ("A100 80GB", "NVIDIA A100-SXM4-80GB"),
    "agx-orin-64gb": ("jetson-agx-orin", "NVIDIA Jetson AGX Orin 64 GB"),
    "t4": ("Tesla T4", "NVIDIA T4"),
}
#: Names of several parts, which belong to the most common one.
DEFAULTS = {"Jetson Orin Nano": "orin-nano-8gb", "Jetson Orin NX": "orin-nx-16gb", "A100 40GB": "a100-40gb"}


def test_people_may_write_a_part_as_shops_and_drivers_do():
    for part, names in SPELT.items():
        assert {lookup(name).part for name in names} == {part}
    assert {name: lookup(name).part for name in DEFAULTS} == DEFAULTS


def test_every_listed_name_is_of_one_part():
    for part, row in table()["part"].items():
        spelt = [each for name in (*row["names"], *row["device_names"]) for each in (name, f"NVIDIA {name}")]
        assert {lookup(name).part for name in (part, *spelt)} == {part}


def test_a_stored_name_is_no_market_name():
    """Devices that are not listed are stored by their driver's name, as this one with more SMs than the listed part."""
    built = from_attributes((8, 6), "NVIDIA GeForce RTX 3080", 70, 1.71, 912.0)
    assert built.part == "nvidia-geforce-rtx-3080" and lookup(built.part).part == "rtx-3080"
    with pytest.raises(UnknownArchError, match="'nvidia-geforce-rtx-3080' is not listed"):
        stored(built.part)
    assert stored("rtx-3080") is lookup("RTX 3080") and stored("agx-orin-64gb-8sm-612mhz").sms == 8


def test_case_and_separators_of_a_name_may_differ():
    assert lookup("AGX-Orin-64GB-8sm-612MHz").part == "agx-orin-64gb-8sm-612mhz"
    assert capability_name("SM999") == "sm_999" and capability_name("orin") is None
    assert lookup("sm_90a") is lookup("compute_90A") is lookup("sm_90")
    assert lookup("sm_100f") is lookup("10.0a") is lookup("sm_100")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("orin", "did you mean orin-nano-8gb, orin-nx-16gb, agx-orin-64gb?"),
        ("Jetson Nano", "did you mean orin-nano-8gb, orin-nano-super, orin-nano-4gb?"),
        ("Jetson Orin", "did you mean orin-nano-8gb, orin-nx-16gb, agx-orin-64gb?"),
        ("NVIDIA A100", "did you mean a100-40gb, a100-80gb, a100-80gb-pcie?"),
        ("GeForce RTX 4080", "did you mean rtx-5080, rtx-4090, rtx-4070?"),
        ("h100", "did you mean h100-sxm, h100-pcie?"),
        ("4090", "did you mean rtx-4090?"),
        ("NVIDIA H100 NVL", "did you mean h100-sxm, h100-pcie?"),
        ("Jetson AGX Xavier", "did you mean agx-orin-64gb, agx-orin-32gb?"),
        ("Jetson Xavier", "it is one of sm_75"),
        ("rtx-309", "did you mean rtx-3090?"),
        ("sm_88", "did you mean sm_80, sm_86, sm_87, sm_89?"),
        ("sm_86a", "did you mean sm_86?"),
        ("8.7F", "did you mean sm_87?"),
        ("sm_90f", "did you mean sm_90?"),
        ("sm_88a", "did you mean sm_80, sm_86, sm_87, sm_89?"),
        (
            "jetson",
            "did you mean orin-nano-8gb, orin-nano-super, orin-nano-4gb, orin-nx-16gb, orin-nx-8gb, agx",
        ),
        ("GeForce", "did you mean rtx-2080-ti, rtx-3090, rtx-3080, rtx-3060, rtx-4090, rtx-4070, rtx-5090, rtx-5080?"),
        ("sm_35", "it is one of sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_120, or a part"),
        ("8", "it is one of sm_75"),
        ("", "it is one of sm_75"),
        ("x" * 10_000, "it is one of sm_75"),
    ],
)
def test_an_unknown_name_is_answered_by_similar_ones(name, words):
    with pytest.raises(UnknownArchError, match="unknown arch ") as told:
        lookup(name)
    assert words in str(told.value) and len(str(told.value)) < 300


def test_an_unlisted_device_is_built_on_its_capability():
    arch = from_attributes((8, 6), "NVIDIA GeForce RTX 3070", 46, 1.725, dram_gb_s=448, l2_bytes=4 << 20)
    assert (arch.name, arch.part) == ("sm_86", "nvidia-geforce-rtx-3070")
    assert (arch.sms, arch.dram_gb_s, arch.l2_mb) == (46, 448, 4)
    assert arch.peak("float32") / 1e12 == pytest.approx(20.3, rel=0.01)
    assert "dram_gb_s" in arch.unsure
    newer = from_attributes((12, 1), "GB10", 48, 2.5)
    assert newer.name == "sm_121" and newer.target == "sm_121a"
    assert newer.smem_per_block == lookup("sm_120").smem_per_block


ORIN = lookup("orin-nano-8gb")


def test_operands_may_fill_the_memory_and_are_told_with_their_sizes_beyond_it():
    assert all(1 < arch.memory_gb < 500 for arch in archs())
    whole = matmul.workload(2**15, 2**15, 2**15, dtype="float16")  # three times 2 GiB
    assert too_large(whole, replace(ORIN, memory_gb=6.0)) is None
    assert too_large(whole, replace(ORIN, memory_gb=5.99)) is not None
    weights = 2**17  # two numbers of 4 bits per byte
    assert too_large(quantised.workload(16, weights, weights, bits=4), ORIN) is None
    assert too_large(quantised.workload(16, weights, weights, bits=8), ORIN) is not None
    assert (
        too_large(matmul.workload(2**20, 32, 4096, dtype="float32"), ORIN)
        == "its operands (a 16 GiB, b 512 KiB, c 128 MiB) exceed the 8 GiB of orin-nano-8gb"
    )
    huge = too_large(matmul.workload(*[2**31 - 1] * 3, dtype="complex128"), lookup("h200"))
    assert huge and "a 68,719,476,672 GiB" in huge and len(huge) < 300


def test_a_device_that_is_not_listed_has_the_memory_of_its_driver():
    huge = matmul.workload(2**16, 2**16, 2**16, dtype="float32")  # three times 16 GiB
    seen = from_attributes((8, 6), "NVIDIA GeForce RTX 3070", 46, 1.725, memory_bytes=8 << 30)
    assert "exceed the 8 GiB of nvidia-geforce-rtx-3070" in str(too_large(huge, seen))
    assert too_large(huge, from_attributes((8, 6), "NVIDIA GeForce RTX 3070", 46, 1.725)) is None  # it is unknown

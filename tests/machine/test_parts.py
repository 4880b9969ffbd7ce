"""Attributes reported by devices, and the parts recognised from them.

`SEEN` (devices.csv) and `ORINS` (orin_modes.csv): attributes as drivers report them. Sources: [dq] a published
deviceQuery listing, [props] published device properties of PyTorch (name, SMs, L2), the rest of such a row from the
data sheet; [ds] data sheet or whitepaper alone; [docs] the Jetson Linux Developer Guide's tables of power
modes, [nvp] nvpmodel's files with the module's other attributes.
"""

from dataclasses import replace

import pytest

from gensor_kernels.devices.doctor import describe
from gensor_kernels.errors import UnknownArchError
from gensor_kernels.machine.arch import archs, lookup, modes, stored, table
from gensor_kernels.machine.attributes import from_attributes
from tests.doubles.strict.part import listed

M = 2**20


SEEN = [
    (part, tuple(map(int, capability.split("."))), name, *map(int, numbers), source)
    for part, capability, name, *numbers, source in listed("devices.csv")
]
#: all report "Orin" and 8.7
ORINS = [(part, *map(int, numbers), source) for part, *numbers, source in listed("orin_modes.csv")]


def recognised(row):
    """Return the Arch of a row, from the attributes that the CUDA device passes."""
    _, capability, name, sms, mhz, memory_mhz, bits, l2, *_ = row
    return from_attributes(capability, name, sms, mhz / 1e3, 2e6 * memory_mhz * bits / 8 / 1e9, l2)


def by_name(name):
    """Return the part recognised from the row that reports this name."""
    return recognised(next(row for row in SEEN if row[2] == name))


def test_a_share_of_a_gpu_is_a_part_of_its_own():
    """A process under MPS that may use half of the SMs, and a slice by MIG."""
    whole = from_attributes((9, 0), "NVIDIA H100 80GB HBM3", 132, 1.98, 3352.3)
    half = from_attributes((9, 0), "NVIDIA H100 80GB HBM3", 66, 1.98, 3352.3, whole.l2_mb * M)
    mig = from_attributes((9, 0), "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16, 1.98, 3352.3, 6 * M, 10 << 30)
    assert (whole.part, half.part, mig.part) == (
        *("h100-sxm", "nvidia-h100-80gb-hbm3-66sm"),
        "nvidia-h100-80gb-hbm3-mig-1g.10gb",
    )
    assert (half.sms, half.name, half.l2_mb, mig.sms, mig.l2_mb, mig.memory_gb) == (66, "sm_90", whole.l2_mb, 16, 6, 10)


def test_devices_are_recognised_by_their_attributes():
    assert {arch.part for arch in archs()} <= {row[0] for row in (*SEEN, *ORINS)}
    for part, capability, name, sms, mhz, memory_mhz, bits, l2, source in SEEN:
        arch = recognised((part, capability, name, sms, mhz, memory_mhz, bits, l2, source))
        assert (arch.part, arch.sms, arch.capability) == (part, sms, capability)
        assert arch.l2_mb == pytest.approx(l2 / M, rel=0.01), part
        if part == "nvidia-gb10":  # an integrated GPU has the bandwidth of its data sheet
            assert arch.dram_gb_s == 273
        else:
            assert arch.dram_gb_s == pytest.approx(2e6 * memory_mhz * bits / 8 / 1e9, rel=0.035), part


def test_an_orin_is_its_module_in_every_power_mode():
    for part, sms, mhz, memory_mhz, bits, l2, memory, _ in ORINS:
        arch = from_attributes((8, 7), "Orin", sms, mhz / 1e3, 2e6 * memory_mhz * bits / 8e9, l2, memory * M)
        assert arch.part == part and arch.sms == sms and arch.l2_mb == l2 / M
        module = next(each for each in archs() if each.name == "sm_87" and part.startswith(each.part))
        # The driver's figures of the memory are wrong: most power modes leave the module's bandwidth, all its L2.
        slower = {"agx-orin-64gb-6sm-408mhz": 2.133 * 2 * 32}
        assert arch.dram_gb_s == pytest.approx(slower.get(part, module.dram_gb_s), rel=1e-3), part
        assert arch.l2_bytes_per_clk == module.l2_bytes_per_clk
        assert arch.clock_ghz == pytest.approx(mhz / 1e3, rel=0.03), part
        assert lookup(arch.part) == arch


#: GPU clock and memory clock (MHz) and the SMs that the mask of power-gated TPCs leaves, in nvpmodel's files of the
#: modules; 0 for what a mode leaves at the module's highest.
MODES = [(part, mode, *map(int, numbers)) for part, mode, *numbers in listed("nvpmodel.csv")]


def test_a_power_mode_has_the_clocks_of_nvpmodel():
    for part, mode, sms, mhz, memory_mhz in MODES:
        arch, module = lookup(f"{part}@{mode}"), lookup(part)
        assert arch.sms == sms, (part, mode)
        assert arch.clock_ghz == pytest.approx((mhz or 1e3 * module.clock_ghz) / 1e3, rel=0.03), (part, mode)
        bits = {4: 64, 8: 128, 16: 128, 32: 256, 64: 256}[module.memory_gb]
        highest = 3199 if module.dram_gb_s > 68 or module.memory_gb > 8 else 2133
        assert arch.dram_gb_s == pytest.approx((memory_mhz or highest) * 2 * bits / 8e3, rel=0.01), (part, mode)
        assert lookup(arch.part) == stored(arch.part) == arch
        assert lookup(f"{part.upper()} @ MODE_{mode.upper()}") is arch
    assert {(part, mode) for part, mode, *_ in MODES} == {(each.part, mode) for each in archs() for mode in modes(each)}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("agx-orin-64gb@60w", "unknown power mode '60w': agx-orin-64gb has maxn, 50w, 30w, 15w"),
        ("h200@700w", "unknown power mode '700w': h200 has none that is listed"),
        ("orin@15w", "did you mean orin-nano-8gb"),
    ],
)
def test_an_unknown_power_mode_is_answered_by_those_of_the_module(name, words):
    with pytest.raises(UnknownArchError, match=words):
        lookup(name)


@pytest.mark.parametrize("name", ["agx-orin-64gb-17sm-612mhz", "agx-orin-64gb-0sm-612mhz", "h200-8sm-612mhz"])
def test_only_jetsons_have_modes_of_at_most_their_sms(name):
    with pytest.raises(UnknownArchError, match=name):
        lookup(name)


def test_an_orin_without_its_memory_is_told_by_its_l2_and_doctor_says_what_a_gpu_is_taken_for():
    assert describe(lookup("h200")) == "h200, sm_90, 132 SMs, 1.83 GHz, 4800 GB/s, 60 MB L2"
    built = describe(by_name("NVIDIA RTX 6000 Ada Generation"))
    assert built.startswith("nvidia-rtx-6000-ada-generation, sm_89, 142 SMs")
    assert built.endswith("; not listed: built from its driver's attributes")
    assert (
        from_attributes((8, 7), "Orin", 8, 0.62475, None, 4 * M).part == "agx-orin-32gb-8sm-612mhz"
    )  # 30 W, within the margin of a clock
    assert from_attributes((8, 7), "Orin", 8, 0.62475, None, 2 * M) is lookup("orin-nano-8gb")


#: dense TFLOP/s with float32 accumulation, TOP/s for int8, from data sheets (half of their figures with sparsity)
UNLISTED = [(name, dtype, float(peak)) for name, dtype, peak in listed("unlisted_peaks.csv")]


def test_unlisted_parts_have_the_rates_of_their_kind():
    for name, dtype, published in UNLISTED:
        assert by_name(name).peak(dtype) / 1e12 == pytest.approx(published, rel=0.08), (name, dtype)
    rates = {
        name: from_attributes((7, 5), name, 46, 1.7, 448).rate("mma_f16")
        for name in ("NVIDIA GeForce RTX 2080", "NVIDIA TITAN RTX", "Quadro RTX 5000")
    }
    assert list(rates.values()) == [256, 512, 512]
    capabilities = table()["capability"]
    for arch in archs():
        if any("GeForce" in name for name in arch.device_names):
            expected = capabilities[arch.name]["geforce"]
            assert {name: arch.rate(name) for name in expected} == expected, arch.part
    listed = by_name("NVIDIA RTX PRO 6000 Blackwell Workstation Edition")
    built = from_attributes((12, 0), "NVIDIA RTX PRO 5000 Blackwell", 110, 2.617, 1344)
    assert built.rates == replace(listed).rates


def test_a_slice_has_its_own_memory_and_no_sustained_rate_of_the_whole():
    small, whole = by_name("NVIDIA A100 80GB PCIe MIG 1g.10gb"), by_name("NVIDIA A100 80GB PCIe")
    assert small.dram_gb_s == pytest.approx(whole.dram_gb_s / 8, rel=0.01) and small.l2_mb == whole.l2_mb / 8
    assert whole.sustained and not small.sustained


@pytest.mark.parametrize(
    ("capability", "sentence"),
    [
        ((11, 0), r"11\.0 yet \(Jetson Thor: sm_110"),
        ((10, 1), r"10\.1 yet \(Jetson Thor: sm_101"),
        ((7, 0), r"no kernels for compute capability 7\.0: only for sm_75, .*sm_120 and later"),
        ((13, 0), r"no kernels for compute capability 13\.0"),
    ],
)
def test_what_is_not_served_is_told_why(capability, sentence):
    with pytest.raises(UnknownArchError, match=sentence):
        from_attributes(capability, "NVIDIA Thor", 20, 1.049, None, 33554432)


def test_default_parts_are_what_databases_are_keyed_by():
    expected = "t4 a100-40gb rtx-3090 orin-nano-8gb rtx-4090 h100-sxm b200 rtx-5090".split()
    assert [lookup(name).part for name in table()["capability"]] == expected

"""Attributes reported by devices, and the parts recognised from them.

`SEEN`: attributes as drivers report them. Sources: [dq] a published deviceQuery listing, [props] published device
properties of PyTorch (name, SMs, L2), the rest of such a row from the data sheet; [ds] data sheet or whitepaper alone;
[docs] the Jetson Linux Developer Guide's tables of power modes.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gensor_kernels.devices import cuda
from gensor_kernels.errors import UnknownArchError
from gensor_kernels.machine.arch import archs, lookup, table
from gensor_kernels.machine.attributes import from_attributes
from gensor_tuner.cli.doctor import described

M = 2**20
#: part, (capability), name, SMs, clock MHz, memory clock MHz, bus bits, L2 bytes, source
SEEN = [
    ("t4", (7, 5), "Tesla T4", 40, 1590, 5001, 256, 4194304, "[dq] chiemon.github.io"),
    ("rtx-2080-ti", (7, 5), "NVIDIA GeForce RTX 2080 Ti", 68, 1545, 7000, 352, 5767168, "[dq]"),
    ("rtx-2080-ti", (7, 5), "NVIDIA GeForce RTX 2080 Ti", 68, 1755, 7000, 352, 5767168, "[dq] an overclocked board"),
    ("quadro-rtx-6000", (7, 5), "Quadro RTX 6000", 72, 1770, 7001, 384, 6 * M, "[ds]"),
    ("a100-40gb", (8, 0), "NVIDIA A100-SXM4-40GB", 108, 1410, 1215, 5120, 41943040, "[dq] votess, issue 10"),
    ("a100-40gb", (8, 0), "NVIDIA A100-PCIE-40GB", 108, 1410, 1215, 5120, 41943040, "[ds]"),
    ("a100-80gb", (8, 0), "NVIDIA A100-SXM4-80GB", 108, 1410, 1593, 5120, 41943040, "[ds]"),
    ("a100-80gb", (8, 0), "NVIDIA A800-SXM4-80GB", 108, 1410, 1593, 5120, 41943040, "[ds]"),
    ("a100-80gb-pcie", (8, 0), "NVIDIA A100 80GB PCIe", 108, 1410, 1512, 5120, 41943040, "[dq] mixbench, issue 47"),
    ("a30", (8, 0), "NVIDIA A30", 56, 1440, 1215, 3072, 24 * M, "[ds]"),
    ("rtx-3090", (8, 6), "NVIDIA GeForce RTX 3090", 82, 1695, 9751, 384, 6 * M, "[ds]"),
    ("rtx-3080", (8, 6), "NVIDIA GeForce RTX 3080", 68, 1710, 9501, 320, 5 * M, "[ds]"),
    ("rtx-3060", (8, 6), "NVIDIA GeForce RTX 3060", 28, 1777, 7501, 192, 2359296, "[dq]"),
    ("rtx-3060", (8, 6), "NVIDIA GeForce RTX 3060", 28, 1867, 7501, 192, 2359296, "[dq] an overclocked board"),
    ("a10", (8, 6), "NVIDIA A10", 72, 1695, 6251, 384, 6291456, "[dq]"),
    ("a10g", (8, 6), "NVIDIA A10G", 80, 1710, 6251, 384, 6291456, "[props] torchcodec's documentation"),
    ("a40", (8, 6), "NVIDIA A40", 84, 1740, 7251, 384, 6291456, "[dq]"),
    ("rtx-a6000", (8, 6), "NVIDIA RTX A6000", 84, 1800, 8001, 384, 6291456, "[dq]"),
    ("rtx-4090", (8, 9), "NVIDIA GeForce RTX 4090", 128, 2520, 10501, 384, 72 * M, "[ds]"),
    ("rtx-4070", (8, 9), "NVIDIA GeForce RTX 4070", 46, 2475, 10501, 192, 36 * M, "[ds]"),
    ("l4", (8, 9), "NVIDIA L4", 58, 2040, 6251, 192, 48 * M, "[dq], its L2 [ds]"),
    ("l20", (8, 9), "NVIDIA L20", 92, 2520, 9001, 384, 96 * M, "[ds]"),
    ("l40", (8, 9), "NVIDIA L40", 142, 2490, 9001, 384, 96 * M, "[ds]"),
    ("l40s", (8, 9), "NVIDIA L40S", 142, 2520, 9001, 384, 100663296, "[dq] cuda-device-query"),
    ("h100-sxm", (9, 0), "NVIDIA H100 80GB HBM3", 132, 1980, 2619, 5120, 52428800, "[dq]"),
    ("h100-pcie", (9, 0), "NVIDIA H100 PCIe", 114, 1755, 1593, 5120, 52428800, "[dq] nvaccelinfo"),
    ("h200", (9, 0), "NVIDIA H200", 132, 1980, 3201, 6144, 62914560, "[props], memory clock of nvidia-smi"),
    ("gh200", (9, 0), "NVIDIA GH200 480GB", 132, 1980, 2619, 6144, 62914560, "[dq]"),
    ("gh200", (9, 0), "NVIDIA GH200 120GB", 132, 1980, 2619, 6144, 62914560, "[dq]"),
    ("gh200-144gb", (9, 0), "NVIDIA GH200 144G HBM3e", 132, 1980, 3201, 6144, 60 * M, "[ds]"),
    ("h800", (9, 0), "NVIDIA H800", 132, 1980, 2619, 5120, 50 * M, "[ds]"),
    ("h20", (9, 0), "NVIDIA H20", 78, 1980, 2619, 6144, 60 * M, "[props] SMs"),
    ("b200", (10, 0), "NVIDIA B200", 148, 1965, 3996, 8192, 126 * M, "[props]"),
    ("rtx-5090", (12, 0), "NVIDIA GeForce RTX 5090", 170, 2407, 14001, 512, 100663296, "[dq]"),
    ("rtx-5080", (12, 0), "NVIDIA GeForce RTX 5080", 84, 2617, 15001, 256, 64 * M, "[ds]"),
    (
        "rtx-pro-6000",
        (12, 0),
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        188,
        2617,
        14001,
        512,
        128 * M,
        "[ds]",
    ),
    (
        *("rtx-pro-6000-server", (12, 0), "NVIDIA RTX PRO 6000 Blackwell Server Edition", 188, 2430, 12481, 512),
        *(128 * M, "[ds] 1597 GB/s"),
    ),
    (
        *("rtx-pro-6000-max-q", (12, 0), "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 188, 2280, 14001),
        *(512, 128 * M, "[ds]"),
    ),
    # Not listed: built from the reported attributes.
    (
        "nvidia-a100-80gb-pcie-mig-1g.10gb",
        (8, 0),
        "NVIDIA A100 80GB PCIe MIG 1g.10gb",
        14,
        1410,
        1512,
        640,
        5242880,
        "[dq]",
    ),
    (
        *("nvidia-h100-80gb-hbm3-mig-1g.10gb", (9, 0), "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16, 1980, 2619, 640),
        *(52428800 // 8, "[props] SMs, MIG guide: an eighth of memory and L2"),
    ),
    ("nvidia-geforce-rtx-3060", (8, 6), "NVIDIA GeForce RTX 3060", 28, 1777, 7501, 128, 2 * M, "[ds] the 8 GB model"),
    ("nvidia-geforce-rtx-3080-ti", (8, 6), "NVIDIA GeForce RTX 3080 Ti", 80, 1755, 9501, 384, 6291456, "[dq]"),
    ("nvidia-geforce-rtx-3080", (8, 6), "NVIDIA GeForce RTX 3080", 70, 1710, 9501, 384, 6 * M, "[ds] the 12 GB model"),
    ("nvidia-rtx-a4000", (8, 6), "NVIDIA RTX A4000", 48, 1560, 7001, 256, 4 * M, "[ds]"),
    ("nvidia-geforce-rtx-4080-super", (8, 9), "NVIDIA GeForce RTX 4080 SUPER", 80, 2550, 11501, 256, 67108864, "[dq]"),
    (
        *("nvidia-geforce-rtx-4090-laptop-gpu", (8, 9), "NVIDIA GeForce RTX 4090 Laptop GPU", 76, 2040, 9001, 256),
        *(67108864, "[dq]"),
    ),
    ("nvidia-rtx-6000-ada-generation", (8, 9), "NVIDIA RTX 6000 Ada Generation", 142, 2505, 10001, 384, 96 * M, "[ds]"),
    ("nvidia-h100-nvl", (9, 0), "NVIDIA H100 NVL", 132, 1785, 2619, 6016, 60 * M, "[ds]"),
    ("nvidia-gb200", (10, 0), "NVIDIA GB200", 152, 2062, 3996, 8192, 126 * M, "[props] SMs"),
    ("nvidia-b300-sxm6-ac", (10, 3), "NVIDIA B300 SXM6 AC", 148, 1920, 3996, 8192, 126 * M, "name and clock: listings"),
    ("nvidia-gb10", (12, 1), "NVIDIA GB10", 48, 2418, 8533, 256, 25165824, "[dq] kubesimplify"),
]
#: part, SMs, clock MHz, memory clock MHz, bus bits, L2 bytes, memory MiB, source; all report "Orin" and 8.7
ORINS = [
    ("orin-nano-8gb", 8, 624, 624, 64, 2097152, 7337, "[dq] 15 W"),
    ("orin-nano-super", 8, 1020, 1020, 64, 2097152, 7620, "[docs] MAXN SUPER"),
    ("orin-nano-4gb", 4, 624, 624, 64, 2097152, 3420, "[docs] 10 W"),
    ("orin-nx-16gb", 8, 918, 918, 64, 2097152, 15388, "[dq] MAXN"),
    ("orin-nx-16gb-4sm-918mhz", 4, 918, 612, 256, 2097152, 15657, "[dq] 10 W"),
    ("orin-nx-16gb-8sm-612mhz", 8, 612, 612, 128, 2097152, 15657, "[docs] 15 W"),
    ("orin-nx-8gb", 8, 765, 612, 128, 2097152, 7618, "[docs] MAXN"),
    ("orin-nx-8gb-4sm-765mhz", 4, 765, 612, 128, 2097152, 7618, "[dq] ubuntu.com"),
    ("agx-orin-64gb", 16, 1300, 1300, 256, 4194304, 62841, "[dq] MAXN"),
    ("agx-orin-64gb-16sm-816mhz", 16, 816, 612, 256, 4194304, 62841, "[docs] 50 W"),
    ("agx-orin-64gb-8sm-612mhz", 8, 612, 612, 256, 4194304, 62841, "[docs] 30 W"),
    (
        "agx-orin-64gb-8sm-1300mhz",
        8,
        1300,
        612,
        256,
        4194304,
        62841,
        "[dq] 30 W, of which the driver keeps the top clock",
    ),
    ("agx-orin-64gb-8sm-1185mhz", 8, 1185, 612, 256, 4194304, 54793, "[dq] Industrial"),
    ("agx-orin-64gb-6sm-408mhz", 6, 408, 612, 256, 4194304, 62841, "[docs] 15 W"),
    ("agx-orin-32gb", 14, 930, 930, 128, 4194304, 30623, "[docs] MAXN"),
    ("agx-orin-32gb-8sm-612mhz", 8, 612, 612, 128, 4194304, 30623, "[docs] 30 W"),
]


def recognised(row):
    """The Arch of a row, as the CUDA device asks for it."""
    _, capability, name, sms, mhz, memory_mhz, bits, l2, *_ = row
    return from_attributes(capability, name, sms, mhz / 1e3, 2e6 * memory_mhz * bits / 8 / 1e9, l2)


def by_name(name):
    """Return the part recognised from the row that reports this name."""
    return recognised(next(row for row in SEEN if row[2] == name))


@pytest.mark.parametrize("row", SEEN, ids=[f"{row[0]}-{place}" for place, row in enumerate(SEEN)])
def test_a_device_is_recognised_by_what_it_says(row):
    arch = recognised(row)
    assert (arch.part, arch.sms, arch.capability) == (row[0], row[3], row[1])
    assert arch.l2_mb == pytest.approx(row[7] / M, rel=0.01)
    if arch.part != "nvidia-gb10":
        assert arch.dram_gb_s == pytest.approx(2e6 * row[5] * row[6] / 8 / 1e9, rel=0.035)


@pytest.mark.parametrize("row", ORINS, ids=[row[0] for row in ORINS])
def test_an_orin_is_its_module_in_every_power_mode(row):
    part, sms, mhz, memory_mhz, bits, l2, memory, _ = row
    arch = from_attributes((8, 7), "Orin", sms, mhz / 1e3, 2e6 * memory_mhz * bits / 8e9, l2, memory * M)
    assert arch.part == part and arch.sms == sms and arch.l2_mb == l2 / M
    module = next(each for each in archs() if each.name == "sm_87" and part.startswith(each.part))
    # The driver's figures of the memory are wrong: a power mode leaves the module's bandwidth and L2.
    assert (arch.dram_gb_s, arch.l2_bytes_per_clk) == (module.dram_gb_s, module.l2_bytes_per_clk)
    assert arch.clock_ghz == pytest.approx(mhz / 1e3, rel=0.03)
    assert lookup(arch.part) == arch


@pytest.mark.parametrize("name", ["agx-orin-64gb-17sm-612mhz", "agx-orin-64gb-0sm-612mhz", "h200-8sm-612mhz"])
def test_only_jetsons_have_modes_of_at_most_their_sms(name):
    with pytest.raises(UnknownArchError, match=name):
        lookup(name)


@pytest.mark.parametrize(
    ("capability", "name", "facts", "memory", "part", "refusal"),
    [
        ("87", b"Orin", {"MultiProcessorCount": 8, "ClockRate": 612000}, 65893269504, "agx-orin-64gb-8sm-612mhz", ""),
        ("86", "NVIDIA A10G", {"MultiProcessorCount": 80, "ClockRate": 1710000}, 22587 * M, "a10g", ""),
        ("110", b"NVIDIA Thor", {"MultiProcessorCount": 20, "ClockRate": 1049000}, 125517 * M, None, "Jetson Thor"),
    ],
)
def test_the_cuda_device_asks_with_all_attributes(capability, name, facts, memory, part, refusal):
    facts = {"MemoryClockRate": 6251000, "GlobalMemoryBusWidth": 384, "L2CacheSize": 4 * M, **facts}
    found = SimpleNamespace(attributes=facts, compute_capability=capability)
    properties = {"name": name, "totalGlobalMem": memory}
    runtime = SimpleNamespace(getDeviceProperties=lambda number: properties)
    device = object.__new__(cuda.CudaDevice)
    device.cupy = SimpleNamespace(cuda=SimpleNamespace(Device=lambda number: found, runtime=runtime))
    device.number, device.arch, device.unsupported = 0, None, ""
    device._identify()
    assert (device.arch.part if device.arch else None) == part and refusal in device.unsupported


def test_doctor_says_what_a_gpu_is_taken_for():
    assert described(lookup("h200")) == "h200, sm_90, 132 SMs, 1.83 GHz, 4800 GB/s, 60 MB L2"
    built = described(by_name("NVIDIA RTX 6000 Ada Generation"))
    assert built.startswith("nvidia-rtx-6000-ada-generation, sm_89, 142 SMs")
    assert built.endswith("; not listed: built from its driver's attributes")


def test_an_orin_without_its_memory_is_told_by_its_l2():
    assert from_attributes((8, 7), "Orin", 8, 0.62475, None, 4 * M).part == "agx-orin-32gb-8sm-625mhz"
    assert from_attributes((8, 7), "Orin", 8, 0.62475, None, 2 * M) is lookup("orin-nano-8gb")


def test_every_listed_part_is_seen():
    assert {arch.part for arch in archs()} <= {row[0] for row in (*SEEN, *ORINS)}


#: dense TFLOP/s with float32 accumulation, TOP/s for int8, from data sheets (half of their figures with sparsity)
UNLISTED = [
    ("NVIDIA L40", "float16", 181),
    ("NVIDIA L40", "float8", 362),
    ("NVIDIA L40", "int8", 362),
    ("NVIDIA RTX 6000 Ada Generation", "bfloat16", 364),
    ("NVIDIA RTX 6000 Ada Generation", "float8", 728),
    ("NVIDIA RTX A4000", "float16", 76.7),
    ("NVIDIA GeForce RTX 3080 Ti", "float16", 68),
    ("NVIDIA GeForce RTX 4080 SUPER", "float16", 104.4),
    ("NVIDIA GeForce RTX 4080 SUPER", "int8", 418),
    ("NVIDIA B300 SXM6 AC", "float64", 1.2),
    ("NVIDIA B300 SXM6 AC", "int8", 150),
    ("NVIDIA B300 SXM6 AC", "float16", 2250),
    ("NVIDIA H20", "bfloat16", 148),
    ("NVIDIA H20", "float64", 1),
    ("NVIDIA H800", "float64", 1),
    ("NVIDIA H800", "bfloat16", 989),
    ("NVIDIA L20", "float16", 119.5),
    ("NVIDIA L20", "int8", 239),
    ("NVIDIA A10G", "bfloat16", 70),
    ("NVIDIA A10G", "int8", 140),
    ("NVIDIA A10G", "float32", 35),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "float32", 120),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "float32", 110),
]


@pytest.mark.parametrize(("name", "dtype", "published"), UNLISTED)
def test_professional_parts_do_not_inherit_rates_of_geforce(name, dtype, published):
    assert by_name(name).peak(dtype) / 1e12 == pytest.approx(published, rel=0.08)


def test_older_geforce_and_titan():
    rates = {
        name: from_attributes((7, 5), name, 46, 1.7, 448).rate("mma_f16")
        for name in ("NVIDIA GeForce RTX 2080", "NVIDIA TITAN RTX", "Quadro RTX 5000")
    }
    assert list(rates.values()) == [256, 512, 512]


def test_listed_geforce_parts_have_the_rates_of_unlisted_ones():
    capabilities = table()["capability"]
    for arch in archs():
        if any("GeForce" in name for name in arch.device_names):
            expected = capabilities[arch.name]["geforce"]
            assert {name: arch.rate(name) for name in expected} == expected, arch.part


def test_a_slice_has_its_own_memory_and_no_sustained_rate_of_the_whole():
    small, whole = by_name("NVIDIA A100 80GB PCIe MIG 1g.10gb"), by_name("NVIDIA A100 80GB PCIe")
    assert small.dram_gb_s == pytest.approx(whole.dram_gb_s / 8, rel=0.01) and small.l2_mb == whole.l2_mb / 8
    assert whole.sustained and not small.sustained


def test_an_integrated_gpu_has_the_bandwidth_of_its_data_sheet():
    assert by_name("NVIDIA GB10").dram_gb_s == 273


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
    expected = "t4 a100-40gb rtx-3090 orin-nano-8gb rtx-4090 h100-sxm b200 rtx-5090".split()  # noqa: SIM905
    assert [lookup(name).part for name in table()["capability"]] == expected


def test_the_rate_of_an_rtx_pro_does_not_depend_on_what_is_listed():
    listed = by_name("NVIDIA RTX PRO 6000 Blackwell Workstation Edition")
    built = from_attributes((12, 0), "NVIDIA RTX PRO 5000 Blackwell", 110, 2.617, 1344)
    assert built.rates == replace(listed).rates

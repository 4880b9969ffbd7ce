"""Arch: the hardware facts of one compute capability and one part, read from ``archs.toml``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from gensor_kernels import spelling
from gensor_kernels.errors import UnknownArchError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Rate names, multiply-accumulates per clock per SM (see archs.toml).
RATES = (
    *("fma_f32", "fma_f64", "imad", "mma_f16", "mma_tf32", "mma_f64", "mma_s8"),
    *("peak_f8", "peak_mxf8", "peak_f4", "peak_f16", "peak_tf32", "peak_s8"),
)
#: Element types, by rate name, of `sustained_<type>` in archs.toml (TFLOP/s).
SUSTAINED = ("f8", "f16", "tf32", "s8")
#: The type whose share of the peak another reaches under the power limit, where its own sustained rate is not known: on
#: an H100, products of 8192 cubed in int8 were as far below the peak as those of 8-bit floats, TF32 ones as bfloat16.
COOLED_AS = {"tf32": "f16", "s8": "f8", "mxf8": "f8", "f4": "f8"}
#: Keys of a part in archs.toml that are no facts about its hardware.
NAMING = ("names", "modes", "mode_gb_s")
#: The best rate of a dtype: the first of these names that the Arch has.
_PEAK = {
    "float64": ("mma_f64", "fma_f64"),
    "float32": ("fma_f32",),
    "tf32": ("peak_tf32", "mma_tf32", "fma_f32"),
    "float16": ("peak_f16", "mma_f16", "fma_f32"),
    "bfloat16": ("peak_f16", "mma_f16", "fma_f32"),
    "float8": ("peak_mxf8", "peak_f8", "peak_f16", "mma_f16", "fma_f32"),
    "float4": ("peak_f4", "peak_f16", "mma_f16", "fma_f32"),
    "int8": ("peak_s8", "mma_s8", "imad"),
    "int32": ("imad",),
    "complex64": ("fma_f32",),
    "complex128": ("mma_f64", "fma_f64"),
}
_CAPABILITY = re.compile(r"(?:(?:sm|cc|compute)[ _-]?)?([1-9][0-9]?)[._]?([0-9])([af]?)", re.ASCII)
#: The first major version with compile targets of such an ending: sm_90a, sm_100f.
_ENDINGS = {"": 1, "a": 9, "f": 10}
_MODE = re.compile(r"(.+)-([1-9]\d?)sm-([1-9]\d{1,3})mhz", re.ASCII)
#: FLOPs of the plain sum over the FLOPs of a math mode.
_SAVED = {"3m": 4 / 3}
#: Products of bfloat16 parts in place of one of float32.
BFLOAT16_PRODUCTS = 6
#: Name in Arch.features of launches that may start before the previous one has ended.
DEPENDENT_LAUNCH = "dependent_launch"
#: Shorter sums of float32 products use multiply-adds: a tensor core truncates products that are small next to their
#: neighbours, and in a short sum that error can exceed the rounding of multiply-adds (docs/float32.md).
LEAST_FLOAT_SUM = 384
#: Products of 8-bit slices in place of one of float64, including the product of leading bits.
SLICE_PRODUCTS = 46
#: Bytes of a unit of `Arch.memory_gb`.
GIB = 2**30
#: Registers of an SM and the most one thread may hold: the same on every capability from sm_75 to sm_120.
REGISTERS_PER_SM = 65536
REGISTERS_PER_THREAD = 255
#: The most parts but one that an error shows.
MOST_PARTS = 3


@dataclass(frozen=True)
class Arch:
    """One GPU part, with the units of archs.toml: clocks in GHz, bandwidth in 10^9 bytes/s, shared memory in bytes.

    Attributes
    ----------
    name, part, target : str
        Compute capability ("sm_87"), part ("orin-nano-8gb"), compile target ("sm_90a").
    rates : Mapping[str, float]
        Multiply-accumulates per clock per SM by instruction class (RATES).
    features : frozenset[str]
        Instructions that families use.
    unsure : frozenset[str]
        Fields that no primary source confirms.
    sustained : Mapping[str, float]
        Published TFLOP/s of large products by element type ("f16").

    Examples
    --------
    >>> lookup("sm_87").part
    'orin-nano-8gb'
    >>> lookup("orin-nano-8gb").peak("float16") > lookup("orin-nano-8gb").peak("float32")
    True
    """

    name: str
    part: str
    target: str
    sms: int
    clock_ghz: float
    dram_gb_s: float
    l2_mb: float
    l2_bytes_per_clk: float
    smem_per_sm: int
    smem_per_block: int
    smem_reserved: int
    smem_bytes_per_clk: float
    threads_per_sm: int
    blocks_per_sm: int
    l2_latency: float
    dram_latency: float
    launch_us: float
    rates: Mapping[str, float]
    features: frozenset[str]
    unsure: frozenset[str] = frozenset()
    device_names: tuple[str, ...] = ()
    memory_gb: float = 0.0
    sustained: Mapping[str, float] = field(default_factory=dict)
    regs_per_sm: int = REGISTERS_PER_SM
    regs_per_thread: int = REGISTERS_PER_THREAD
    threads_per_block: int = 1024

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability as (major, minor)."""
        digits = self.name.removeprefix("sm_")
        return int(digits[:-1]), int(digits[-1])

    def __post_init__(self) -> None:
        for name in ("rates", "sustained"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def values(self) -> dict[str, Any]:
        """Return the fields as other processes and machines are handed them: a mapping proxy cannot be pickled."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "rates": dict(self.rates), "sustained": dict(self.sustained)}

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.values(),)

    def rate(self, name: str) -> float:
        """Return multiply-accumulates per clock per SM of an instruction class; 0 where the part has none."""
        return self.rates.get(name, 0.0)

    def heat(self, name: str) -> float:
        """Return the share of its clock that the part loses to its power limit where an instruction class is always
        busy; 0 where no sustained rate is known.

        Types without a sustained rate lose what their like do (COOLED_AS), and instructions below the best rate of
        their type less.
        """
        kind = name.partition("_")[2]
        known = kind if kind in self.sustained else COOLED_AS.get(kind, kind)
        best = self.rate(f"peak_{known}") or self.rate(f"mma_{known}")
        own = self.rate(f"peak_{kind}") or self.rate(f"mma_{kind}")
        if known not in self.sustained or not best or not own:
            return 0.0
        reached = self.sustained[known] * 1e3 / (2.0 * best * self.sms * self.clock_ghz)
        return max(1.0 - reached, 0.0) * self.rate(name) / own

    def __hash__(self) -> int:
        return hash((self.name, self.part))  # figures of one part seldom differ, and predictions are looked up by them

    def peak(self, dtype: str, math: str = "ieee", sustained: bool = False) -> float:
        """Return the hardware's best FLOP/s (integer OP/s for int8) for dense inputs of a type.

        Parameters
        ----------
        dtype : str
            Input type; "float8" stands for any 8-bit float, "float4" for block-scaled operands of 4 bits.
        math : str
            Math mode of the Workload.  float32 uses TF32 tensor cores only with "tf32".  FLOPs of "3m" are
            those of four real products, of which three do 3/4.
        sustained : bool
            Whether the power limit counts: the best published rate of large products; see `heat`.

        Returns
        -------
        float
            FLOP/s with float32 accumulators for float16 and bfloat16, and real FLOPs (eight per multiply-add) for
            complex types.  bfloat16 needs sm_80.  On sm_90 and sm_100 this is the wgmma / tcgen05 rate, which mma.sync
            does not reach.
        """
        if dtype == "float32" and math == "tf32":
            dtype = "tf32"
        names = _PEAK[dtype]
        if dtype in ("bfloat16", "tf32") and "bf16" not in self.features:
            names = ("fma_f32",)
        best = next((name for name in names if self.rates.get(name)), "")
        flops = 2.0 * self.rate(best) * self.sms * self.clock_ghz * 1e9
        if sustained:
            flops *= 1.0 - self.heat(best)
        return flops * _SAVED.get(math, 1.0)

    def fastest(self, dtype: str, math: str = "ieee", terms: int = LEAST_FLOAT_SUM, sustained: bool = False) -> float:
        """Return the best FLOP/s of sums of ``terms`` products of ``dtype``.

        That is ``peak``, or the rate of six products of bfloat16 parts for each of float32 in long sums, or of products
        of 8-bit slices for each of float64 if ``math`` allows it; ``sustained`` as in ``peak``.
        """
        best = self.peak(dtype, math, sustained)
        long = terms >= LEAST_FLOAT_SUM
        if dtype == "float32" and "bf16" in self.features and long:  # for any ``math``
            best = max(best, self.peak("bfloat16", sustained=sustained) / BFLOAT16_PRODUCTS)
        if dtype == "float64" and math == "ozaki" and "mma_m16n8k32_s8" in self.features:
            best = max(best, self.peak("int8", sustained=sustained) / SLICE_PRODUCTS)
        return best


def _restored(values: dict[str, Any]) -> Arch:
    return Arch(**values)


@cache
def table() -> Mapping[str, Any]:
    """Return archs.toml as it is."""
    return MappingProxyType(tomllib.loads(_text()))


def _text() -> str:
    return resources.files(__package__).joinpath("archs.toml").read_text(encoding="utf-8")


def _build(capability: str, part: str, row: Mapping[str, Any]) -> Arch:
    shared = table()["capability"][capability]
    merged = {**shared, **row}
    merged["unsure"] = sorted({*shared["unsure"], *row.get("unsure", ())})
    rates = rates_of(merged)
    sustained = {name: merged.pop(f"sustained_{name}") for name in SUSTAINED if f"sustained_{name}" in merged}
    for name in ("default_part", "capability", "geforce", *NAMING, *RATES):
        merged.pop(name, None)
    for name in ("features", "unsure"):
        merged[name] = frozenset(merged[name])
    merged["device_names"] = tuple(merged.get("device_names", ()))
    return Arch(name=capability, part=part, rates=rates, sustained=sustained, **merged)


def in_mode(module: Arch, sms: int, mhz: int) -> Arch:
    """Return a Jetson module in a power mode: fewer SMs and other clocks, the same L2 and memory bus."""
    part = f"{module.part}-{sms}sm-{mhz}mhz"
    bandwidth = table()["part"][module.part].get("mode_gb_s", {}).get(part, module.dram_gb_s)
    unsure = module.unsure | {"dram_gb_s"}
    return replace(module, part=part, sms=sms, clock_ghz=mhz / 1e3, dram_gb_s=bandwidth, unsure=unsure)


def modes(module: Arch) -> Mapping[str, Arch]:
    """Return the documented power modes of a Jetson module by name ("30w", "maxn"); none of other parts.

    Examples
    --------
    >>> {name: (mode.sms, mode.clock_ghz) for name, mode in modes(lookup("Jetson AGX Orin")).items()}
    {'maxn': (16, 1.3), '50w': (16, 0.816), '30w': (8, 0.612), '15w': (6, 0.408)}
    """
    row = table()["part"].get(module.part, {})
    return {name: stored(part) for name, part in row.get("modes", {}).items()}


def rates_of(*rows: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the rates of rows of the table; a later row overrides an earlier row."""
    return {name: float(row[name]) for row in rows for name in RATES if name in row}


@cache
def archs() -> tuple[Arch, ...]:
    """Return every listed part, in the order of archs.toml."""
    return tuple(_build(row["capability"], part, row) for part, row in table()["part"].items())


def capability_name(name: str) -> str | None:
    """Return a compute capability by its usual name, also where archs.toml does not list it, or None.

    Examples
    --------
    >>> [capability_name(each) for each in ("sm_87", "SM87", "8.7", "87", "sm_90a")]
    ['sm_87', 'sm_87', 'sm_87', 'sm_87', 'sm_90']
    >>> [capability_name(each) for each in ("h200", "sm_86a")]
    [None, None]
    """
    found = _CAPABILITY.fullmatch(name.strip().lower())
    return f"sm_{found[1]}{found[2]}" if found and int(found[1]) >= _ENDINGS[found[3]] else None


def peers(arch: Arch) -> tuple[Arch, ...]:
    """Return the parts that run the same kernels as an Arch: itself, then the others listed of its capability.

    Examples
    --------
    >>> [each.part for each in peers(lookup("sm_75"))]
    ['t4', 'rtx-2080-ti', 'quadro-rtx-6000']
    """
    return (arch, *[each for each in archs() if each.name == arch.name and each.part != arch.part])


@cache
def sources(row: str) -> Mapping[str, str]:
    """Return where the facts of a table of archs.toml ("part.h200") are from, in the words of the comments there.

    Examples
    --------
    >>> sources("part.h200")["dram_gb_s"]
    '[ds] 4,300 reached by a copy kernel'
    """
    sections = dict(re.findall(r"^\[(\S+)\][^\n]*\n(.*?)(?=^\[|\Z)", _text(), re.MULTILINE | re.DOTALL))
    return dict(re.findall(r"^([\w-]+) += .*?#\s*(.+)$", sections.get(row, ""), re.MULTILINE))


@cache
def _exact(name: str) -> Arch | None:
    parts = {arch.part: arch for arch in archs()}
    part = table()["capability"].get(name, {}).get("default_part", name)
    found = _MODE.fullmatch(part)
    module = parts.get(found[1]) if found else None
    if found and module and not module.device_names and 1 <= int(found[2]) <= module.sms:
        return in_mode(module, int(found[2]), int(found[3]))
    return parts.get(part)


def stored(name: str) -> Arch:
    """Return the Arch of a name as it is stored: `Arch.name`, or `Arch.part` of a listed part or a Jetson's power mode.

    A device that is not listed is stored by its driver's name ("nvidia-h100-pcie"), which `lookup` takes for what
    people call a listed part. Raises UnknownArchError for it.
    """
    found = _exact(name)
    if found is None:
        raise UnknownArchError(f"{name[: spelling.LONGEST]!r} is not listed")
    return found


def _without_brands(name: str) -> str:
    """Return a name in lower case, without separators and brands before it: "NVIDIA GeForce RTX 4090" is "rtx4090"."""
    brands = "|".join(spelling.squeezed(brand) for brand in table()["brands"])
    return re.sub(f"^({brands})+", "", spelling.squeezed(name))


@cache
def _market_names() -> Mapping[str, str]:
    """Return the parts by what people and drivers call them."""
    rows = table()["part"].items()
    return {_without_brands(name): part for part, row in rows for name in (*row["names"], *row["device_names"])}


@cache
def lookup(name: str) -> Arch:
    """Return the Arch of a capability or a part.

    Parameters
    ----------
    name : str
        A capability ("sm_87", "8.7", its default part), a part ("orin-nano-8gb") or its usual name ("Jetson Orin Nano",
        "NVIDIA GeForce RTX 4090"), or a Jetson module in a power mode: a documented one ("agx-orin-64gb@30w"), or
        any, with its number of SMs and its clock ("agx-orin-64gb-8sm-612mhz"). Case and separators may differ.

    Raises
    ------
    UnknownArchError
        For another name; the message has similar names.

    Examples
    --------
    >>> lookup("GeForce RTX 3090").part
    'rtx-3090'
    >>> lookup("Jetson AGX Orin @ 30 W").part
    'agx-orin-64gb-8sm-612mhz'
    >>> lookup("H100")
    Traceback (most recent call last):
        ...
    gensor_kernels.errors.UnknownArchError: unknown arch 'H100': did you mean h100-sxm, h100-pcie?
    """
    name = str(name)
    module, at, mode = name.partition("@")
    if at:
        return _in_mode_called(lookup(module), mode)
    capabilities, parts = table()["capability"], [arch.part for arch in archs()]
    capability = capability_name(name)
    part = capability or spelling.find(_without_brands(name), parts, _market_names()) or name.strip().lower()
    found = _exact(part)
    if found is not None:
        return found
    capability = capability or capability_name(name.strip().rstrip("afAF"))  # sm_86a
    same_major = [each for each in capabilities if capability and each[:-1] == capability[:-1]]
    listed = [each for each in same_major if each == capability]
    meant = listed or same_major if capability else _near_parts(name, parts)
    hint = spelling.did_you_mean(meant) or f"it is one of {', '.join(capabilities)}, or a part of `gensor-tune archs`"
    raise UnknownArchError(f"unknown arch {name[: spelling.LONGEST]!r}: {hint}")


def _in_mode_called(module: Arch, mode: str) -> Arch:
    """Return a module in the power mode of this name: "30w", "30 W", "MODE_30W"."""
    known = modes(module)
    found = spelling.find(mode, known, {f"mode_{name}": name for name in known})
    if found is None:
        which = f"{module.part} has {spelling.listed(known)}" if known else f"{module.part} has none that is listed"
        raise UnknownArchError(f"unknown power mode {mode[: spelling.LONGEST]!r}: {which}")
    return known[found]


def _near_parts(name: str, parts: list[str]) -> list[str]:
    """Return the parts whose names have all words of `name` ("orin": one module of each kind), else similar parts.

    Else those with its first word: "H100 NVL" is answered by the H100s that are listed, and a brand by its parts.
    """
    words = [_without_brands(word) for word in re.split(r"[\s_-]+", name[: spelling.LONGEST])]
    words = [word for word in words if word]
    if not words and spelling.squeezed(name):
        brand, rows = spelling.squeezed(name), table()["part"].items()
        return [part for part, row in rows if any(spelling.squeezed(each).startswith(brand) for each in row["names"])]
    if len(max(words, key=len, default="")) < 2:  # "8" is in many names
        return []
    found = [part for part in parts if all(word in part.replace("-", "") for word in words)]
    found = found or spelling.near(_without_brands(name), parts, _market_names())
    found = found or [part for part in parts if words[0] in part.replace("-", "") and len(words[0]) > 2]
    if len(found) > MOST_PARTS:
        found = list({part.rpartition("-")[0]: part for part in reversed(found)}.values())[::-1]
    return found[: MOST_PARTS + 1]

"""The Arch of a device, recognised by the attributes that its driver reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gensor_kernels.errors import UnknownArchError

from .arch import GIB, Arch, archs, in_mode, lookup, modes, rates_of, table

#: Relative differences between a listed part's clock and bandwidth and the driver's figures that are still the part.
SAME_CLOCK = 0.03
SAME_BANDWIDTH = 0.1
#: Largest share of a Jetson's memory that the operating system withholds from its GPU.
KEPT_MEMORY = 0.3
#: Compute capabilities that are not served although their neighbours are, and the devices that have them.
UNSERVED = {
    (10, 1): "Jetson Thor: sm_101 until CUDA 12.9, sm_110 since",
    (11, 0): "Jetson Thor: sm_110, sm_101 until CUDA 12.9",
}


def from_attributes(
    capability: tuple[int, int],
    name: str,
    sms: int,
    clock_ghz: float,
    dram_gb_s: float | None = None,
    l2_bytes: int | None = None,
    memory_bytes: int | None = None,
) -> Arch:
    """Return the Arch of a device from its attributes: a listed part, or one built from the facts of its capability.

    ``name`` is the driver's device name, ``clock_ghz`` its SM clock.  A device name listed in archs.toml with the
    same SM count and memory bandwidth gives that row.  Jetson modules share one name: see ``_module``.  Otherwise
    facts per SM come from the capability (or the closest lower capability of the same major), facts of the whole device
    from the attributes, and facts that are not given are scaled from the default part by SM count.  Raises
    UnknownArchError for a capability that is not served.
    """
    sm = f"sm_{capability[0]}{capability[1]}"
    listed = [arch for arch in archs() if arch.name == sm]
    for arch in listed:
        same = dram_gb_s is None or abs(dram_gb_s / arch.dram_gb_s - 1) < SAME_BANDWIDTH
        if arch.sms == sms and name in arch.device_names and same:
            return arch
    modules = [arch for arch in listed if not arch.device_names]
    if modules:
        return _module(modules, sms, clock_ghz, l2_bytes, memory_bytes)
    base = _base(capability)
    limited = any(name in arch.device_names and arch.sms > sms for arch in listed)  # MPS can give a process fewer SMs
    part = "-".join([*name.lower().split(), *([f"{sms}sm"] if limited else [])])
    shared, variant = table()["capability"][base.name], table()["variant"].get(sm, {})
    scale = sms / base.sms
    return replace(
        base,
        name=sm,
        part=part or sm,
        target=sm + base.target.removeprefix(base.name),  # with an ending, where features need it
        sms=sms,
        clock_ghz=clock_ghz,
        dram_gb_s=variant.get("dram_gb_s") or dram_gb_s or base.dram_gb_s * scale,
        l2_mb=l2_bytes / 2**20 if l2_bytes else base.l2_mb * scale,
        l2_bytes_per_clk=base.l2_bytes_per_clk * scale,
        device_names=(name,),
        memory_gb=(memory_bytes or 0) / GIB,
        rates=rates_of(shared, shared.get("geforce", {}) if "geforce" in name.lower() else {}, variant),
        sustained={},
        features=base.features - set(variant.get("lacks", ())),
        unsure=base.unsure | {"dram_gb_s", "l2_mb", "l2_bytes_per_clk", *variant.get("unsure", ())},
    )


def _base(capability: tuple[int, int]) -> Arch:
    """Return the default part of the closest capability of this major that is not above this one."""
    name = f"compute capability {capability[0]}.{capability[1]}"
    choices = [lookup(known) for known in table()["capability"]]
    if capability in UNSERVED:
        raise UnknownArchError(
            f"no kernels are verified for {name} yet ({UNSERVED[capability]}): CuPy's own calls serve"
        )
    below = [arch for arch in choices if arch.capability[0] == capability[0] and arch.capability <= capability]
    if not below:
        named = ", ".join(arch.name for arch in choices)
        raise UnknownArchError(f"there are no kernels for {name}: only for {named} and later ones of their majors")
    return max(below, key=lambda arch: arch.capability)


def _module(listed: Sequence[Arch], sms: int, clock_ghz: float, l2_bytes: int | None, memory_bytes: int | None) -> Arch:
    """Return the Jetson module with this L2, memory, SM count and clock, in the closest of its power modes.

    A power mode switches SMs off and lowers clocks, but leaves the L2 and the memory bus: an AGX Orin of 30 W has as
    many SMs at the same clock as an Orin Nano.  Jetsons report a wrong clock and width of their memory.
    """

    def fits(arch: Arch) -> bool:
        whole = arch.memory_gb * GIB
        here = memory_bytes is None or whole * (1 - KEPT_MEMORY) <= memory_bytes <= whole
        return here and (l2_bytes is None or arch.l2_mb == l2_bytes / 2**20)

    near = [arch for arch in listed if fits(arch)] or listed

    def distance(known: tuple[Arch, Arch]) -> tuple[float, ...]:
        return tuple(value for arch in known for value in (abs(arch.sms - sms), abs(arch.clock_ghz - clock_ghz)))

    pairs = [(mode, module) for module in near for mode in (module, *modes(module).values())]
    best, module = min(pairs, key=distance)
    if best.sms == sms and abs(best.clock_ghz / clock_ghz - 1) < SAME_CLOCK:
        return best
    return in_mode(module, sms, round(clock_ghz * 1e3))

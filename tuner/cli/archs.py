"""`gensor-tune archs`: the listed parts, or one with its figures, their sources and what ships for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields

from gensor_kernels.machine.arch import RATES, SUSTAINED, Arch, archs, lookup, modes, sources, table
from gensor_tuner.output import counts_text

#: Labels and units of the figures of a part, in the order of the lines.
FIGURES = {
    "sms": ("SMs", ""),
    "clock_ghz": ("clock", "GHz"),
    "memory_gb": ("memory", "GiB"),
    "dram_gb_s": ("bandwidth", "GB/s"),
    "l2_mb": ("L2", "MiB"),
    "l2_bytes_per_clk": ("L2 loads", "bytes/clock"),
    "l2_latency": ("L2 latency", "clocks"),
    "dram_latency": ("memory latency", "clocks"),
    "smem_per_sm": ("shared memory", "bytes/SM"),
    "smem_per_block": ("shared memory", "bytes/block"),
    "smem_reserved": ("  reserved", "bytes/block"),
    "smem_bytes_per_clk": ("  loads", "bytes/clock/SM"),
    "threads_per_sm": ("threads", "per SM"),
    "blocks_per_sm": ("blocks", "per SM"),
    "launch_us": ("launch", "us"),
}
#: The end of the name of a part in a power mode.
MODE = re.compile(r"-\d+sm-\d+mhz$")
#: Tables of a packaged database whose rows are counted.
SHIPPED = ("kernel", "record")
#: Peak rates that both views print, by element type.
PEAKS = {"fp32": "float32", "fp16": "float16", "int8": "int8"}
SEVERAL = 'fp32, fp16, int8: TFLOP/s (TOP/s), dense, sums in float32 or int32; "gensor-tune archs PART" has all figures'


def overview() -> Iterator[str]:
    """Yield a line for each listed part."""
    yield f"{'arch':<8} {'part':<19} {'SMs':>4} {'GHz':>5} {'GB/s':>5} {'fp32':>6} {'fp16':>6} {'int8':>6}  name"
    for arch in archs():
        yield _row(arch, arch.part, table()["part"][arch.part]["names"][0])
        for mode, found in modes(arch).items():
            if found not in archs():
                yield _row(found, f"{arch.part}@{mode}", found.part)


def _row(arch: Arch, part: str, name: str) -> str:
    figures = f"{arch.sms:>4} {arch.clock_ghz:>5.2f} {arch.dram_gb_s:>5.0f} "
    figures += " ".join(f"{arch.peak(dtype) / 1e12:>6.1f}" for dtype in PEAKS.values())
    return f"{arch.name:<8} {part:<19} {figures}  {name}"


def details(name: str) -> Iterator[str]:
    """Yield lines about one part: names, figures with their sources, peak rates, and the database that ships."""
    from gensor_tuner.store.maintenance import layers, size_text

    arch = lookup(name)
    module = MODE.sub("", arch.part)
    row, known = table()["part"][module], modes(lookup(module))
    yield _entry("part", f"{arch.part}, {arch.name}")
    yield _entry("names", ", ".join([*row["names"], *row["device_names"]]))
    if known:
        yield _entry("power modes", ", ".join(f"@{mode} ({found.part})" for mode, found in known.items()))
    found = {**sources(f"capability.{arch.name}"), **sources(f"part.{module}")}
    if arch.part != module:
        mode = next((sources(f"part.{module}.modes")[name] for name, each in known.items() if each == arch), "")
        memory = {"dram_gb_s": mode} if arch.dram_gb_s != lookup(module).dram_gb_s else {}
        found |= {"sms": mode, "clock_ghz": mode, **memory}
    values = {each.name: getattr(arch, each.name) for each in fields(Arch)}
    for key, (label, unit) in FIGURES.items():
        yield _figure(label, values[key], unit, found.get(key, ""), key in arch.unsure)
    for key in RATES:
        if arch.rate(key):
            yield _figure(key, arch.rate(key), "/clock/SM", found.get(key, ""), key in arch.unsure)
    for kind in SUSTAINED:
        if kind in arch.sustained:
            yield _figure(f"kept {kind}", arch.sustained[kind], "TFLOP/s", found.get(f"sustained_{kind}", ""), False)
    peaks = ", ".join(f"{name} {arch.peak(dtype) / 1e12:.1f}" for name, dtype in PEAKS.items())
    yield _entry("peaks", f"{peaks} TFLOP/s (TOP/s), dense, sums in float32 or int32")
    *_, packaged = layers(arch.name)
    counts = counts_text({kind: packaged.rows[kind] for kind in SHIPPED if kind in packaged.rows})
    shipped = f"{size_text(packaged.bytes)}: {counts}"
    if packaged.state != "used":
        shipped = f"{packaged.state}: {packaged.reason}"
    yield _entry("ships", f"{arch.name}.db, tuned for {lookup(arch.name).part}, {shipped}")
    named = {each.partition("-")[0] for each in re.findall(r"\[([^]]+)\]", " ".join(found.values()))}
    for key, words in table()["sources"].items():
        if key in named:
            yield _entry(f"[{key}]", words)


def _entry(label: str, words: str) -> str:
    return f"{label:<15} {words}"


def _figure(label: str, value: float, unit: str, source: str, unsure: bool) -> str:
    words = " ".join([*([source] if source else []), *(["(unsure)"] if unsure else [])])
    return f"{label:<15} {value:>9.7g} {unit:<14} {words}".rstrip()

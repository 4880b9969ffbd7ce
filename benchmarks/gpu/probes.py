"""The roofline's facts about a part, measured by probe.cu: L2 bandwidth, latencies, rates, the time of a launch.

`arch_row` formats them as a row of archs.toml, for corrections of the table.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gensor_kernels.devices.device import Code
from gensor_kernels.families.core import source
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import SIZE
from gensor_kernels.machine.arch import Arch

from .harness.session import Session

THREADS, IN_FLIGHT, CHAINS, TILES = 256, 4, 8, 4  # of probe.cu
SAMPLES = 11  # samples of a median, the first one included
LINE = 128  # bytes per step of a pointer chase
POINTERS, SIZES = struct.Struct("<3Q"), struct.Struct("<3i")
SIZES_OFFSET = 200  # of m, n, k in Params
BLOCKS_PER_SM = 4
MADE, CLOCKED = 1000, 100  # launches timed on the host, and launches between two synchronisations


class WrongProbeError(Exception):
    """A probe computed a wrong result."""


def tiny(session: Session) -> bool:
    """Return whether the probes are too small for meaningful times."""
    return session.emulate


class Probes:
    """Probes of one device. They are tiny in a rehearsal, where times mean nothing."""

    def __init__(self, session: Session, seconds: Callable[[Session, Callable[[], None]], float]):
        self.session, self.device, self.arch, self._seconds = session, session.device, session.arch, seconds
        self.tiny = tiny(session)
        self.blocks = 2 if self.tiny else BLOCKS_PER_SM * self.arch.sms

    @cached_property
    def code(self) -> Code:
        """The probes' source."""
        text = source.flatten("epilogue_operand.cuh") + Path(__file__).with_name("probe.cu").read_text()
        constants = (("MMA_K", 16 if "mma_m16n8k16" in self.arch.features else 8),)
        return Code(source.digest(text + str(constants)), text, constants, self.arch.target)

    def run(self, entry: str, a: Any, m: int, k: int, blocks: int) -> tuple[Callable[[], None], Any]:
        """Return a function that launches a probe, and the words that it writes."""
        device, threads = self.device, THREADS
        words = device.xp.zeros(blocks * threads, np.uint32)
        launch = device.load(self.code, [Launch(entry, blocks, threads, 0)])
        packed = bytearray(SIZE)
        POINTERS.pack_into(packed, 0, device.pointer(a), 0, device.pointer(words))
        SIZES.pack_into(packed, SIZES_OFFSET, m, 0, k)

        def call() -> None:
            arguments = device.local.arguments
            arguments[0][:] = packed
            launch(arguments, (words, a), (), None)

        return call, words

    def l2(self) -> dict[str, Any]:
        """Return the bytes per second at which all multiprocessors read a quarter of the L2."""
        size = 1 << 14 if self.tiny else int(self.arch.l2_mb * 2**20) // 4
        rounds = 2 if self.tiny else 16 * size // (THREADS * IN_FLIGHT * 16)
        rng = np.random.Generator(np.random.PCG64(0))
        host = rng.integers(0, 2**32, size // 4, np.uint32)
        call, words = self.run("probe_stream", self.device.xp.asarray(host), size // 16, rounds, self.blocks)
        seconds = self._seconds(self.session, call)
        at = (
            np.arange(THREADS * IN_FLIGHT * rounds).reshape(-1, THREADS) + size // 16 * (self.blocks - 1) // self.blocks
        )
        lines = host.reshape(-1, 4)[at % (size // 16)]
        _same(self.device.host(words)[-THREADS:], np.bitwise_xor.reduce(lines[..., 0] ^ lines[..., 3], axis=0))
        moved = 16 * IN_FLIGHT * THREADS * rounds * self.blocks
        return {"seconds": seconds, "gb_s": moved / seconds / 1e9, "buffer_bytes": size}

    def latency(self, of_l2: bool) -> dict[str, Any]:
        """Return the seconds from a load's issue to its data, in the L2 or in DRAM, TLB misses included."""
        l2 = int(self.arch.l2_mb * 2**20)
        lines = 256 if self.tiny else (l2 // 4 if of_l2 else 4 * l2) // LINE
        steps = 64 if self.tiny else 4096
        order = np.random.Generator(np.random.PCG64(0)).permutation(lines).astype(np.uint32) * np.uint32(LINE // 4)
        host = np.zeros(lines * LINE // 4, np.uint32)
        host[order] = np.roll(order, -1)
        a = self.device.xp.asarray(host)
        # Reads from DRAM may not repeat an address: every sample reads another place, its launch prepared ahead.
        starts = [sample * steps % lines for sample in range(SAMPLES)]
        made = [self.run("probe_chase", a, int(order[start]), steps, 1) for start in starts]
        calls = iter([call for call, _ in made])
        if of_l2 and not self.tiny:  # brings the whole buffer into the L2
            call, _ = self.run("probe_stream", a, host.nbytes // 16, host.nbytes // (16 * THREADS), 1)
            call()
        seconds = self._seconds(self.session, lambda: next(calls)())
        for start, (_, words) in list(zip(starts, made, strict=True))[: SAMPLES - len(list(calls))]:
            _same(self.device.host(words)[0], order[(start + steps) % lines])
        return {"seconds": seconds, "ns": seconds / steps * 1e9, "buffer_bytes": host.nbytes}

    def rate(self, entry: str, flops: int) -> dict[str, Any]:
        """Return the FLOP/s of register arithmetic; `flops` counts one step of a thread."""
        steps = 3 if self.tiny else 1 << 14
        call, words = self.run(entry, self.device.xp.zeros(4, np.uint32), 1, steps, self.blocks)
        seconds = self._seconds(self.session, call)
        if not self.device.host(words).any():
            raise WrongProbeError(f"{entry} left nothing")
        return {"seconds": seconds, "tflops": flops * steps * THREADS * self.blocks / seconds / 1e12}

    def launches(self) -> dict[str, Any]:
        """Return the host seconds of one launch, queued after others."""
        call, _ = self.run("probe_nothing", self.device.xp.zeros(4, np.uint32), 0, 0, 1)
        call()
        spent = 0.0
        for _ in range(1 if self.tiny else MADE // CLOCKED):
            self.session.synchronize()
            began = time.perf_counter()
            for _ in range(CLOCKED):
                call()
            spent += time.perf_counter() - began
        return {"us": spent / (CLOCKED if self.tiny else MADE) * 1e6}


def probes(session: Session, seconds: Callable[[Session, Callable[[], None]], float]) -> Iterator[tuple[str, Any]]:
    """Yield (item, function) of every probe."""
    probes = Probes(session, seconds)
    depth = dict(probes.code.constants)["MMA_K"]
    assert isinstance(depth, int)
    yield "l2", probes.l2
    yield "l2 latency", lambda: probes.latency(of_l2=True)
    yield "dram latency", lambda: probes.latency(of_l2=False)
    yield "fma float32", lambda: probes.rate("probe_fma", 2 * CHAINS)
    yield "mma float16", lambda: probes.rate("probe_mma", 2 * TILES * 16 * 8 * depth // 32)
    yield "launch", probes.launches


def _same(found: np.ndarray, wanted: np.ndarray) -> None:
    if not np.array_equal(found, wanted):
        raise WrongProbeError(f"{found} where {wanted} was to be")


def arch_row(arch: Arch, clock_ghz: float, found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the part's row of archs.toml with the values measured at a clock, and the table's values as comments.

    `found` are results by item. DRAM bandwidth and rates keep the data sheet's values, because the roofline itself has
    the share that a copy and a product reach.
    """
    per_clk = {
        "l2_bytes_per_clk": _number(found, "l2", "gb_s", 1 / clock_ghz),
        "l2_latency": _number(found, "l2 latency", "ns", clock_ghz),
        "dram_latency": _number(found, "dram latency", "ns", clock_ghz),
        "launch_us": _number(found, "launch", "us", 1.0),
    }
    lines = [f"[part.{arch.part}]", f'capability = "{arch.name}"']
    for name in ("sms", "clock_ghz", "dram_gb_s", "l2_mb"):
        lines.append(f"{name} = {getattr(arch, name):g}")
    for name, value in per_clk.items():
        known = getattr(arch, name)
        lines.append(f"{name} = {known if value is None else float(f'{value:.3g}'):g}  # the table has {known:g}")
    for item, unit in (("copy", "gb_s"), ("fma float32", "tflops"), ("mma float16", "tflops")):
        value = _number(found, item, unit, 1.0)
        lines += [] if value is None else [f"# {item}: {value:.4g} {unit}, measured"]
    return "\n".join(lines) + "\n"


def _number(found: Mapping[str, Mapping[str, Any]], item: str, unit: str, factor: float) -> float | None:
    value = found.get(item, {}).get(unit)
    return None if value is None else float(value) * factor

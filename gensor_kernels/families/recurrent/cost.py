"""Terms of the recurrent family: every step reads R, from shared memory, the L1 or the L2, and waits for the last."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.contraction.cost import BLOCK_START, L2_USABLE, granted
from gensor_kernels.families.core.family import Facts, Points
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms, promised_registers, residency

from .shape import Layer, Shape, shape

#: Registers of addresses, predicates and counters.
BASE_REGISTERS = 40.0
#: Clocks of a barrier, of a shuffle, and of a chain of exponentials and quotients of gates.
BARRIER, SHUFFLE, ACTIVATIONS = 30.0, 25.0, 250.0
#: Trips to the L2 at the end of a step of several blocks: the stores of h and the fence after them, the flag's store,
#: its load, the load of h (stream_k.py has more, fitted to H100s, which are counted once per launch).
TRIPS = 5.0
LINE = 128.0
RATES = {"float32": "fma_f32", "float64": "fma_f64"}


def registers(c: Points, e: Layer, s: Shape) -> np.ndarray:
    """Return the registers that a thread wants: sums, vectors of R and of h."""
    words = e.word / 4
    elements = np.asarray(c["vector"]) / e.bytes_r
    sums = e.gates * np.asarray(c["batch"]) * words
    loads = e.gates * np.maximum(np.asarray(c["vector"]) / 4, 1) + np.minimum(elements * words, 4)
    return (BASE_REGISTERS + 1.2 * sums + loads).astype(np.float32)


def terms(c: Points, e: Layer, arch: Arch, accumulator: str, facts: Facts | None = None) -> Terms:
    """Return the Terms of Programs: an iteration is a step of the recurrence."""
    s = shape(c, e)
    warps = (s.threads / 32).astype(np.float32)
    limit = promised_registers(np.maximum(c["min_blocks"], 1) * warps, arch)
    used, spilled = granted(registers(c, e, s), limit, facts)
    memory = s.memory.astype(np.float32)
    residents = np.maximum(residency(warps, used.astype(np.float32), memory, arch), 1.0)
    elements, batch = np.asarray(c["vector"]) / e.bytes_r, np.asarray(c["batch"])
    step = np.asarray(c["lanes"]) * elements
    turns = s.passes * s.iterations
    multiplies = turns * elements * e.gates * batch
    convert = 0.0 if e.bytes_r == e.word else 1.0
    loads = turns * (e.gates * (2.0 + convert * elements) + batch * np.maximum(elements * e.word / 16, 1))
    levels = np.log2(np.asarray(c["lanes"]))
    joins = s.passes * levels * e.gates * batch * 2.0
    finish = s.passes * np.ceil(batch / np.asarray(c["lanes"])) * (30.0 * e.gates + 60.0)
    held = np.asarray(c["held"]) > 0
    weights = (float(e.gates) * e.hidden * e.bytes_r * s.units).astype(np.float32)
    # The L1 has what shared memory leaves of it.
    room = np.maximum(arch.smem_per_sm - residents * memory, 0.0) / residents
    missed = np.where(held, 0.0, np.clip(weights - room, 0.0, weights))
    lines = (
        turns * warps * (e.gates * np.maximum(32 * np.asarray(c["vector"]) / LINE, 1.0) + batch * elements * e.word / 4)
    )
    wait = arch.l2_latency * np.where(held, 1.0, 2.0) + SHUFFLE * levels + ACTIVATIONS + BARRIER
    several = s.team > 1
    wait = wait * s.passes + several * (TRIPS * arch.l2_latency + 2 * BARRIER)
    wait = wait + e.quantised * (3 * BARRIER + 5 * SHUFFLE + batch * s.iterations * step / s.threads * 20.0)
    # What the L2 cannot keep from step to step comes from DRAM at every step.
    whole = float(e.gates) * e.hidden * e.hidden * e.bytes_r * e.directions
    lost = several * np.where(held, 0.0, max(1.0 - L2_USABLE * arch.l2_mb * 2**20 / whole, 0.0))
    exchanged = several * (batch * float(e.hidden) * e.word)
    states = float(e.steps) * e.batch * e.directions * e.hidden * (e.gates * e.word + e.bytes_r)
    once = whole * (1.0 + lost * (e.steps - 1)) + states
    like = np.ones(len(warps))
    values = {
        "blocks": s.blocks * like, "residents": residents, "warps": warps, "iterations": e.steps * like,
        "math": multiplies * (128.0 / arch.rate(RATES[accumulator])), "multiplies": multiplies,
        "issue": loads + joins + finish + spilled, "wavefronts": lines + spilled * warps, "chain": wait,
        "l2_bytes": missed + batch * s.units * (e.gates * e.word + e.bytes_r) + exchanged, "dram_bytes": once * like,
        "in_flight": like, "exposed": 0.5 * like, "prologue": (BLOCK_START + arch.dram_latency) * like,
        "epilogue": arch.l2_latency * like, "epilogue_busy": 0.0 * like, "epilogue_bytes": 0.0 * like,
        "after": 0.0 * like, "registers": used, "shared_bytes": memory,
    }  # fmt: skip
    return Terms(**{name: np.asarray(value, dtype=np.float32) for name, value in values.items()})

"""Legality of attention (attention.cu and attention_*.cuh)."""

from __future__ import annotations

from gensor_kernels.families.contraction.mma.instructions import Code
from gensor_kernels.families.contraction.mma.rules import COPIES
from gensor_kernels.families.contraction.rules import COLUMNS_OF_C
from gensor_kernels.families.core.rules import LAUNCH, Rule, Rules
from gensor_kernels.operators.types.workload import Workload

from .shape import sizes_of

COORDINATES = {"BLOCK_KEYS": "block_k", "HEAD": "head_tile", "C_VECTOR": "vector_c"}
#: Rules that attention_wgmma shares.
SHARED = (
    Rule("A head is 1 to 16 steps of 16 elements.", "HEAD % 16 == 0 and HEAD >= 16 and HEAD <= 256", given=True),
    Rule("The head fits its tile.", "HEAD >= N", asserted=False),
    Rule("Every part of the keys has a step.", "(SPLIT_K - 1) * BLOCK_KEYS < KEYS", asserted=False),
    Rule(
        "The mask is read one element or two at a time.",
        "not MASK or MASK_VECTOR == sizeof(MASK_TYPE) or (MASK_UNIT and MASK_VECTOR == 2 * sizeof(MASK_TYPE))",
        given=True,
    ),
    COLUMNS_OF_C,
    *LAUNCH,
)
SIZES = ("N", "KEYS")
RULES = Rules(
    (
        Rule(
            "Warps have whole fragments of 16 rows, blocks whole warps.", "WARP_Q % 16 == 0 and BLOCK_Q % WARP_Q == 0"
        ),
        Rule("A block has 1 to 32 warps.", "THREADS >= 32 and THREADS <= 1024"),
        Rule("A step is whole fragments of 16 keys.", "BLOCK_KEYS % 16 == 0", given=True),
        Rule("The scores and sums of a larger warp tile do not fit registers.", "WARP_Q * (HEAD + BLOCK_KEYS) <= 6656"),
        Rule(
            "This instruction does not multiply this type.",
            "INSTRUCTION == F16_K16 or INSTRUCTION == F16_K8 if same_type(IN_TYPE, half_t)"
            " else same_type(IN_TYPE, bfloat16_t) and INSTRUCTION == F16_K16",
            given=True,
        ),
        # ---- copies
        Rule(
            "cp.async takes 1 to 4 stages, registers take 1.", "STAGES >= 1 and STAGES <= 4 if ASYNC else STAGES == 1"
        ),
        Rule(
            "cp.async copies 4, 8 or 16 bytes; narrower needs ASYNC 0.",
            "not ASYNC or (K_VECTOR >= 4 and V_VECTOR >= 4)",
        ),
        Rule("Elements of Q that are not adjacent are copied one by one.", "Q_UNIT or Q_VECTOR == ELEMENT", given=True),
        *(rule._replace(of="KV") for rule in COPIES),
        # ---- sequences
        Rule(
            "Sequences of different lengths have diagonals of their own, as windows have.",
            "not KEYS_IN or SLIDING",
            given=True,
        ),
        Rule(
            "Rows and keys are packed together, without a mask.",
            "KEYS_IN and not MASK if RAGGED else KEYS_IN != KEYS_PACKED",
            given=True,
        ),
        *SHARED,
    ),
    coordinates={**COORDINATES, "ASYNC": "copy", "K_VECTOR": "vector_k", "V_VECTOR": "vector_v"},
    derived={
        "THREADS": "32 * (BLOCK_Q // WARP_Q)",
        "ELEMENT": "sizeof(IN_TYPE)",
        "KEYS_PACKED": "1",
        "PROMISED": "MIN_BLOCKS",
    },
    of_operand={"K_CONTIGUOUS": "0"},
    members=("PASSES", "COLUMNS", "PIECES_PER_THREAD", "K_CONTIGUOUS"),
    types={"K": "KeyTile", "V": "ValueTile"},
    constants={"F16_K16": Code.F16_K16.value, "F16_K8": Code.F16_K8.value},
    sizes=SIZES,
    computed=("SHARED_BYTES", "WARPS", *(f"{x}_{name}" for x in "KV" for name in ("COLUMNS", "PIECES_PER_THREAD"))),
)


def sizes(workload: Workload) -> dict[str, int]:
    """Return the sizes that rules are about."""
    e = sizes_of(workload)
    return {"N": e.n, "KEYS": e.keys}

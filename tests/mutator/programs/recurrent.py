"""Programs of the recurrent families."""

from dataclasses import replace

from gensor_kernels.operators.recurrent.recurrent import workload
from gensor_kernels.operators.types.workload import Workload
from tests.mutator.engine.configuration import Configuration


def recurrent_configurations() -> list[Configuration]:
    """Every cell, weights in shared memory and not, lanes of a whole warp and of a part, several entries of a block."""
    single = workload("recurrent_lstm", 4, 3, 20, dtype="float32")
    half, double = workload("recurrent_gru", 4, 3, 24), workload("recurrent_lstm", 4, 3, 10, dtype="float64")
    return [
        _recurrent("lstm", single),
        _recurrent("lstm, held", single, held=1, lanes=4, groups=8, batch=2),
        _recurrent("lstm, float64", double, vector=8, lanes=16, groups=2),
        _recurrent("peepholes", workload("recurrent_lstm_peepholes", 4, 3, 24), lanes=2, groups=16, batch=4),
        _recurrent("gru", half, lanes=4, groups=16),
        _recurrent("gru, held", half, vector=4, held=1, batch=2),
        _recurrent("rnn", workload("recurrent_rnn", 4, 3, 7, dtype="float32"), vector=4, lanes=1, groups=32),
    ]


def sliced_configurations() -> list[Configuration]:
    """Teams of two and of more blocks, weights in shared memory and not, states in 8 bits."""
    single = workload("recurrent_lstm", 4, 3, 20, dtype="float32")
    rounded = workload("recurrent_lstm_quantised", 4, 1, 20, dtype="float32")
    words = workload("recurrent_rnn", 4, 3, 21, dtype="float32")
    return [
        _sliced("lstm", single, batch=2, slices=4),
        _sliced("lstm, held", single, held=1, groups=8, lanes=4, batch=2, slices=4),
        _sliced("rnn, words", words, vector=4, lanes=1, groups=32, batch=2, slices=4),
        _sliced("rnn, words held", words, vector=4, lanes=1, groups=32, held=1, batch=2, slices=4),
        _sliced("rounded", rounded, lanes=4, groups=16, batch=4, slices=2),
        _sliced("rounded, one block", rounded, held=1, lanes=1, groups=32),
    ]


def _sliced(name: str, workload: Workload, slices: int = 1, **values: int) -> Configuration:
    made = _recurrent(name, workload, **values)
    return replace(made, group="recurrent_slices", values={**made.values, "slices": slices})


def _recurrent(name: str, workload: Workload, **values: int) -> Configuration:
    base = {
        "lanes": 8, "groups": 4, "batch": 1, "held": 0, "vector": 16, "epilogue_fixed": 0, "min_blocks": 0,
    }  # fmt: skip
    return Configuration(name, "recurrent", "sm_87", workload, base | values)

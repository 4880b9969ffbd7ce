"""Workloads of the recurrent families: cells, types, directions, layers that fit shared memory and not."""

from gensor_kernels.operators.recurrent.recurrent import workload

from . import Contract

SERVED = [
    ("sm_87", workload("recurrent_lstm", 64, 1, 128, directions=2)),
    ("sm_75", workload("recurrent_gru", 32, 8, 64, dtype="float32", order=1)),
    ("sm_90", workload("recurrent_lstm_peepholes", 100, 3, 96, directions=2, dtype="bfloat16", order=1)),
    ("sm_89", workload("recurrent_rnn", 20, 33, 100, dtype="float32", reverse=1)),
    ("sm_80", workload("recurrent_lstm", 16, 4, 60, dtype="float64")),
    ("sm_86", workload("recurrent_gru", 50, 16, 512, dtype="float16", directions=2)),
    ("sm_87", workload("recurrent_lstm", 25, 2, 7, dtype="float16")),
]
SLICED = [
    ("sm_90", workload("recurrent_lstm", 64, 1, 1024)),
    ("sm_87", workload("recurrent_lstm_quantised", 16, 2, 256, directions=2, dtype="float32", order=1)),
    ("sm_80", workload("recurrent_gru", 32, 20, 600, dtype="bfloat16", directions=2)),
    ("sm_75", workload("recurrent_lstm_peepholes", 9, 3, 300, dtype="float64", reverse=1)),
    ("sm_86", workload("recurrent_rnn", 9, 3, 513)),
]
CONTRACTS = {
    "recurrent": Contract(SERVED, starters=lambda starters, index: starters[:2], randoms=2),
    "recurrent_slices": Contract(SLICED, starters=lambda starters, index: starters[:2], randoms=2),
}

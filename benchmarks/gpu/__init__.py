"""The steps of `python -m benchmarks.device` (benchmarks/README.md lists them): each module has `items(session)`.

harness/   what runs the steps: the journal, the supervisor of worker processes, a worker's session
kernels/   what they run: stored kernels, the sizes that fit, the order of verification, comparison with float64
vendors/   the libraries that kernels are compared with: CuPy, cuBLASLt, PyTorch
summary    the report at the end
"""

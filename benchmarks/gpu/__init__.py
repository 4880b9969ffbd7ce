"""The steps of `python -m benchmarks.device`, most valuable first: each module has `items(session)`.

facts            the machine and its ceilings (probes)
claims           workloads that machine code cannot settle (claims.csv), next to the vendors' best
families         every kernel family at the verifier's own cases
shipped          every kernel of the database at the sizes of its records
timing           the same kernels next to the vendors' calls
graphs           whole models from ONNX files, captured, next to the array library
compiled         one workload of each operator next to torch.compile
public           the public functions (public_calls)
suite            CuPy's own tests inside `accelerate` (accelerated)
fault_injection  damaged launches, which must be noticed
sanitizer        a few kernels under compute-sanitizer

harness/   what runs the steps: the journal, the supervisor of worker processes, a worker's session, the parts of a run
kernels/   what they run: stored kernels, the sizes that fit, the order of verification, comparison with float64
vendors/   the libraries that kernels are compared with: CuPy, cuBLASLt, PyTorch
summary    the report at the end
"""

"""Calls of every public function, drawn at random: kernels on the emulator, the library, and outside references.

`drawing` draws arrays and notes their classes, `arguments` draws extreme arguments, `references` and `onnx_ops` give
the right result by NumPy, SciPy and ONNX's reference evaluator. `serving` runs calls on the emulator and counts
launches, `ways` runs each call by kernels and by the library. `python -m tests.public_cases` draws many.
"""

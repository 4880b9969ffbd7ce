"""Calls of every public function, drawn at random, served by kernels on the emulator, against independent references.

`drawing` draws arrays and counts what they are instances of, `serving` runs calls and counts launches, `references`
and `onnx_ops` say what is right: NumPy, SciPy and ONNX's reference evaluator, none of them ours. `ways` runs the same
calls by the library also, with the extreme arguments of `arguments`; `python -m tests.public_cases` draws many.
"""

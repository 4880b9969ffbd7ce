"""Whole models: an ONNX file in, a graph of fused kernels out. Imports between these folders point down this list:

execution    a loaded model: plans per input signature, their execution, and what serves each layer
readers      from a file to a Graph
rewrites     one class per rule: what is folded and fused
layouts      channels first or last, chosen by predicted time
lowerings    what each operator calls: one of our functions, or the array library
ir           nodes and tensors
"""

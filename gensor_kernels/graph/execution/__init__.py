"""Loaded models: plans per input signature, their execution, and what serves each layer."""

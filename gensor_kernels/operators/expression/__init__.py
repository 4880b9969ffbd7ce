"""Tensor expressions: named axes, index maps, combiners, and their float64 evaluation."""

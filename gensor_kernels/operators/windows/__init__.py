"""Operators that read an image through a sliding window: convolutions and pooling."""

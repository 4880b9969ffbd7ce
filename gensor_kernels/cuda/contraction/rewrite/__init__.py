"""Families whose main loop runs behind a launch that rewrites its operands."""

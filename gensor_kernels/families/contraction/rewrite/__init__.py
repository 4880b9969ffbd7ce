"""Launches that rewrite operands before a main loop."""

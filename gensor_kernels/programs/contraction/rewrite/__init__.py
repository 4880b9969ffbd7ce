"""Launches that rewrite operands in front of a main loop."""

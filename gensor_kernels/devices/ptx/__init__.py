"""Execution of PTX on this machine's CPU: translated to C++, with bounds, races and the rules of the ISA checked."""

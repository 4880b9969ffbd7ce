"""A kernel per rule of the PTX ISA: broken, which emulator and executor must say, and kept."""

"""The C++ side of the emulator."""

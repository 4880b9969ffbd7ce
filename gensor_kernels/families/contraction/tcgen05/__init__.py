"""Products in tensor memory, see family.py."""

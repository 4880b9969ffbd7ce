"""contraction_blocks: mma.sync with operands in block-scaled formats."""

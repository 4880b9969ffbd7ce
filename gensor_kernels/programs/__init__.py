"""How it is computed: Programs, their space, and the kernel families."""

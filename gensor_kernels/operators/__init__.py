"""What is computed: operators as declarations."""

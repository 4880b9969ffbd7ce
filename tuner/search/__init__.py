"""The construction graph and the Markov walk over it."""

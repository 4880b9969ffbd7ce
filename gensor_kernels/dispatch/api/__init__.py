"""The public functions. Each imports little: a first call loads the rest."""

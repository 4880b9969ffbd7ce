"""The command line of gensor-tune."""

"""The command line of gensor-tune."""

#: The message after Ctrl-C.
STOPPED = "gensor-tune: stopped; what was done is kept, run the same command again to go on"

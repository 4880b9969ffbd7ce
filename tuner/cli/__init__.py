"""The command line of gensor-tune."""

#: What a person reads after Ctrl-C.
STOPPED = "gensor-tune: stopped; what was done is kept, run the same command again to go on"

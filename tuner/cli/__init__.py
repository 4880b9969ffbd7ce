"""The command line of gensor-tune."""

#: The message after Ctrl-C.
STOPPED = "gensor-tune: stopped; what was done is kept, run the same command again to go on"

SHELLS = ("bash", "zsh", "fish")
#: The variable by which a shell's script requests completions.
VARIABLE = "_GENSOR_TUNE_COMPLETE"

"""PTX text to C++: the parser, the writer of expressions, and a translation for each group of instructions."""

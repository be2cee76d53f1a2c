"""An observation from its first probe to its last sample, live, in any strategy and detail.

Puts together what `kernel`, `symbols` and `auto` do; knows no screen and no command line.
"""

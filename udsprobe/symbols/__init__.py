"""Addresses in processes and in the kernel → functions: the only code that reads symbols.

Everything here comes from strangers: the files of targets, their maps and the names in them.
Sizes are bounded, names made printable, and what does not fit is *not known*.
"""

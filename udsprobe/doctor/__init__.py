"""What a host's limits and its servers' configurations mean: pure rules over facts.

Knows facts, configuration languages and what kernels and servers make of them.
Reads nothing: `udsprobe.kernel` and `udsprobe.servers` do.
"""

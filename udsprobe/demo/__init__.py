"""A Unix-socket server and its load, to look at with udsprobe.

Both count what they do and say it as one JSON object when they end, so that
tests can hold udsprobe's figures against it. Standard library only; knows
nothing of the rest of udsprobe.
"""

REQUEST_BYTES = 64
REPLY_BYTES = 1024

"""Tasks of asyncio in a process of CPython: the list of all, and where each waits."""

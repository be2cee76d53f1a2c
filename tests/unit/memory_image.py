"""Memory of a process that is not there."""

from __future__ import annotations

from udsprobe.kernel.proc.process_memory import ProcessMemory


class MemoryImage(ProcessMemory):
    """Of bytes that are there, from `start` on."""

    def __init__(self, start: int, image: bytes) -> None:
        super().__init__(0)
        self.start, self.image = start, image

    def read(self, address: int, size_bytes: int) -> bytes:
        """Raises OSError where none of them are."""
        at = address - self.start
        if at < 0 or at + size_bytes > len(self.image):
            raise OSError("no memory")
        return self.image[at : at + size_bytes]

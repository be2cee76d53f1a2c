"""Programs that stay loaded from one observation to the next: verifying them is most of what
beginning one costs, and programs that are attached to nothing cost the host nothing."""

from __future__ import annotations

from typing import Optional

from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.programs.fresh import make_fresh
from udsprobe.kernel.programs.loaded import LoadedPrograms
from udsprobe.kernel.programs.loader import series_max
from udsprobe.kernel.stacks.loaded import LoadedStacks


class KeptPrograms:
    """Of observations that follow each other, all with the same strategy, detail and targets that
    are followed or not. Those of stacks read a map of the others, and are kept beside them.

    Attributes:
        keeps: whether what is put here is there afterwards.
    """

    def __init__(self) -> None:
        self._loaded: Optional[LoadedPrograms] = None
        self._stacks: Optional[LoadedStacks] = None
        self.keeps = True

    @property
    def maps_bytes(self) -> int:
        """Kernel memory of the maps of what is here."""
        return sum(each.object.maps_bytes() for each in (self._loaded, self._stacks) if each)

    def take(self) -> Optional[LoadedPrograms]:
        """The programs, with maps as they were when they were loaded; None: none are kept."""
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            # What is loaded now has maps of its own.
            self._drop_stacks()
        return loaded

    def take_stacks(self) -> Optional[LoadedStacks]:
        """The programs of stacks, beside those that were taken last; None: none are kept."""
        stacks, self._stacks = self._stacks, None
        return stacks

    def put_stacks(self, stacks: LoadedStacks) -> None:
        """From whom took or loaded them, before the others come back."""
        self._drop_stacks()
        if self.keeps:
            self._stacks = stacks
        else:
            stacks.object.close()

    def _drop_stacks(self) -> None:
        stacks = self.take_stacks()
        if stacks is not None:
            stacks.object.close()

    def put(self, loaded: LoadedPrograms) -> None:
        """From whom took or loaded them; given back to the kernel where they cannot be kept.

        The programs on functions are taken away by then; the bodies that they share are kept.
        """
        if not self.keeps or self._loaded is not None:
            loaded.object.close()
            return
        try:
            loaded.object.detach()
            make_fresh(loaded.object, cpus=loaded.cpus, series_max=series_max(loaded.cpus))
        except LibbpfError:
            self.keeps = False
            loaded.object.close()
        except BaseException:
            loaded.object.close()
            raise
        else:
            self._loaded = loaded

    def close(self) -> None:
        """Keep nothing any more. May be called twice."""
        self.keeps = False
        loaded = self.take()
        if loaded is not None:
            loaded.object.close()

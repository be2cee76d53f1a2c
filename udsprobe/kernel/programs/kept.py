"""Programs that stay loaded from one observation to the next: verifying them is most of what
beginning one costs, and programs that are attached to nothing cost the host nothing."""

from __future__ import annotations

from typing import Optional

from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.programs.fresh import make_fresh
from udsprobe.kernel.programs.loaded import LoadedPrograms
from udsprobe.kernel.programs.loader import series_max


class KeptPrograms:
    """Of observations that follow each other, all with the same strategy, detail and targets that
    are followed or not.

    Attributes:
        keeps: whether what is put here is there afterwards.
        maps_bytes: kernel memory of the maps of what is here.
    """

    def __init__(self) -> None:
        self._loaded: Optional[LoadedPrograms] = None
        self.keeps = True
        self.maps_bytes = 0

    def take(self) -> Optional[LoadedPrograms]:
        """The programs, with maps as they were when they were loaded; None: none are kept."""
        loaded, self._loaded = self._loaded, None
        self.maps_bytes = 0
        return loaded

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
            self._loaded, self.maps_bytes = loaded, loaded.object.maps_bytes()

    def close(self) -> None:
        """Keep nothing any more. May be called twice."""
        self.keeps = False
        loaded = self.take()
        if loaded is not None:
            loaded.object.close()

"""BCC's Python module, and the kernel headers that it compiles against: found, or named.

BCC is not on PyPI (the `bcc` there is another program): distributions pack it for their own
Python, and a virtual environment does not see it. It is pure Python over libbcc through ctypes,
so it is imported from where the distribution puts it, that package alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
from pathlib import Path
from typing import Any, List, Optional, Tuple

from udsprobe.errors import KernelCannotError

# Debian and Ubuntu; Fedora and other RPM distributions; Alpine and Arch.
PLACES = (
    "usr/lib/python3/dist-packages",
    "usr/lib/python3*/site-packages",
    "usr/lib64/python3*/site-packages",
)
WITHOUT = "`udsprobe listeners` works without probes"


def bcc_module(root: Path = Path("/")) -> Any:
    """The module `bcc`, imported at its first use.

    Args:
        root: of the file system that is searched where Python itself does not find it.

    Raises:
        KernelCannotError: `no-bcc`, `no-kernel-headers`, naming all packages that are missing.
    """
    found, why = _imported(root)
    headers = has_headers(platform.release(), root)
    if found is None:
        raise KernelCannotError(
            "no-bcc",
            f"strategy bcc needs BCC's Python module{why}",
            _install(with_bcc=True, with_headers=not headers),
        )
    if not headers:
        raise KernelCannotError(
            "no-kernel-headers",
            "strategy bcc compiles against the headers of the running kernel, and "
            f"/lib/modules/{platform.release()}/build has none",
            _install(with_bcc=False, with_headers=True),
        )
    return found


def bcc_is_here() -> bool:
    """Whether strategy `bcc` has all that it needs on this machine."""
    try:
        bcc_module()
    except KernelCannotError:
        return False
    return True


def has_headers(release: str, root: Path = Path("/")) -> bool:
    """Whether BCC will find the headers, where it looks for them (its `ClangLoader::parse`).

    Args:
        release: of the kernel, as `uname -r` says.
    """
    modules = root / "lib/modules" / release
    split = (modules / "build").is_dir() and (modules / "source").is_dir()
    named = os.environ.get("BCC_KERNEL_SOURCE")
    tree = Path(named) if named else modules / ("source" if split else "build")
    if (tree / "include/linux/kconfig.h").is_file():
        return True
    # CONFIG_IKHEADERS: the kernel brings them itself, built in or as a module.
    in_kernel = (root / "sys/kernel/kheaders.tar.xz").exists()
    return in_kernel or any(modules.glob("kernel/kernel/kheaders.ko*"))


def _imported(root: Path) -> Tuple[Optional[Any], str]:
    """The module, or None and why."""
    why = ", which is not installed"
    for load in (_plain, *(_of(folder) for folder in _folders(root))):
        try:
            module = load()
        except ModuleNotFoundError:
            continue
        # ctypes says OSError of a library that is missing.
        except (ImportError, OSError, AttributeError) as error:
            why = f", which cannot be used ({error})"
            continue
        if hasattr(module, "BPF"):
            return module, ""
        sys.modules.pop("bcc", None)
    return None, why


def _plain() -> Any:
    return importlib.import_module("bcc")


def _folders(root: Path) -> List[Path]:
    return [found for place in PLACES for found in sorted(root.glob(f"{place}/bcc"))]


def _of(folder: Path) -> Any:
    def load() -> Any:
        spec = importlib.util.spec_from_file_location(
            "bcc", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} is not a package")
        module = importlib.util.module_from_spec(spec)
        sys.modules["bcc"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop("bcc", None)
            raise
        return module

    return load


def _install(*, with_bcc: bool, with_headers: bool) -> str:
    release = platform.release()
    debian = ["python3-bpfcc"] * with_bcc + [f"linux-headers-{release}"] * with_headers
    fedora = ["python3-bcc"] * with_bcc + [f"kernel-devel-{release}"] * with_headers
    return (
        f"install them: Debian/Ubuntu `apt install {' '.join(debian)}`, "
        f"Fedora `dnf install {' '.join(fedora)}`; {WITHOUT}"
    )

"""Compiles the BPF programs before setuptools packs them; all else is in pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

sys.path.insert(0, str(Path(__file__).parent / "scripts"))

import build_bpf


class BuildPythonAndBpf(build_py):
    def run(self) -> None:
        build_bpf.build_or_exit()
        super().run()


class SdistWithObjects(sdist):
    def run(self) -> None:
        build_bpf.build_or_exit()
        super().run()


setup(cmdclass={"build_py": BuildPythonAndBpf, "sdist": SdistWithObjects})

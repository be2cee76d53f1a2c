"""One target under atheris, which looks for inputs that reach new code.

`python -m tests.fuzz TARGET SECONDS FOLDER`; `scripts/fuzz` does that for each.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris


def main() -> None:
    name, seconds, folder = sys.argv[1:]
    with atheris.instrument_imports(include=["udsprobe", "crossplane"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    corpus, crashes = Path(folder, "corpus"), Path(folder, "crashes")
    for made in (corpus, crashes):
        made.mkdir(parents=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={crashes}/", "-timeout=30"]
    limits = ["-max_len=65536", "-rss_limit_mb=3072", "-print_final_stats=1", "-verbosity=1"]
    # On a machine at work 10 s pass by themselves; what takes long is a timeout.
    limits.append("-report_slow_units=30")
    atheris.Setup([sys.argv[0], str(corpus), *options, *limits], target.attempt)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

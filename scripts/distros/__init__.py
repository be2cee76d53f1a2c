"""Root folders of distributions: which compilers' objects load, and whether the README's commands
run there. Started by `scripts/compilers` and `scripts/distributions`; no part of the package."""

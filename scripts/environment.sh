# shellcheck shell=bash
# Sourced by the scripts beside it: where the project is, and whether its .venv fits it.
# Only bash's own commands: this runs before every start of udsprobe.

here=${BASH_SOURCE[0]}
[[ -L $here ]] && here=$(readlink -f "$here")
root=$(cd "${here%/*}/.." && pwd -P)
venv=$root/.venv
stamp=$venv/udsprobe-setup

# environment_is_current run|tests
environment_is_current() {
    local place scope source
    [[ -x $venv/bin/python && -f $stamp ]] || return 1
    { IFS= read -r place && IFS= read -r scope; } <"$stamp" || return 1
    [[ $place == "$root" ]] || return 1
    [[ $scope == tests || $1 == run ]] || return 1
    for source in "$root"/{pyproject.toml,setup.py,scripts/setup,scripts/build_bpf.py,bpf,bpf/*}; do
        [[ $source -nt $stamp ]] && return 1
    done
    return 0
}

fail() {
    printf 'udsprobe: error[setup]: %s\n' "$1" >&2
    exit "${2:-70}"
}

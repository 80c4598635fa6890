#!/usr/bin/env bash
# Makes sure that PYTHON is 3.11 or newer and can create virtual environments; as root on an apt machine
# the missing venv package is installed. Usage: tools/ensure-python.sh PYTHON
set -euo pipefail

python=$1

fail() {
    printf 'error: %s\n' "$@" >&2
    exit 1
}

command -v "$python" > /dev/null ||
    fail "there is no '$python'; install Python 3.11 or newer, or name one: make setup PYTHON=python3.12"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "'$python' is $("$python" --version 2>&1); Python 3.11 or newer is needed: make setup PYTHON=python3.12"

can_make_venv() { "$python" -c 'import ensurepip, venv' 2> /dev/null; }

if ! can_make_venv; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        echo "Python's venv module is missing; installing python$version-venv with apt ..."
        export DEBIAN_FRONTEND=noninteractive
        apt-get -qq update
        apt-get -qq install -y --no-install-recommends "python$version-venv" > /dev/null ||
            fail "apt could not install python$version-venv; install Python's venv module and run make again"
    fi
    can_make_venv ||
        fail "'$python' has no venv module; install it (Debian: apt-get install python$version-venv) and run make again"
fi

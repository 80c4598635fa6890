#!/usr/bin/env bash
# Makes sure that the Java which Spark will start is version 17 or newer. When there is none, installs one
# as root on an apt machine; otherwise says what to do and exits 1.
set -euo pipefail

needed=17
# Newer Debian releases no longer carry 17; any of these runs Spark.
packages=(openjdk-17-jre-headless openjdk-21-jre-headless)

fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    if [ $# -gt 0 ]; then printf '  %s\n' "$@" >&2; fi
    exit 1
}

# Prints the major version of the given java command, or nothing where it does not run.
java_version() {
    "$1" -version 2>&1 | sed -n 's/.* version "\([0-9][0-9]*\).*/\1/p' | head -n 1 || true
}

is_enough() {
    local version
    version=$(java_version "$1")
    [ -n "$version" ] && [ "$version" -ge "$needed" ]
}

# Spark looks at JAVA_HOME before PATH, so installing another Java would not help here.
if [ -n "${JAVA_HOME:-}" ]; then
    is_enough "$JAVA_HOME/bin/java" && exit 0
    fail "JAVA_HOME is set to '$JAVA_HOME', which holds no Java $needed or newer." \
        "Point JAVA_HOME at Java $needed or newer, or unset it, and run make again."
fi

is_enough java && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    found=$(java_version java)
    fail "Spark needs Java $needed or newer${found:+; the java on PATH is version $found}." \
        "Debian, Ubuntu:  sudo apt-get install ${packages[0]}" \
        "elsewhere:       install a JDK or JRE $needed or newer, or point JAVA_HOME at one" \
        "Then run make again. 'make test-fast' works without Java."
fi

echo "Java $needed or newer is missing; installing it with apt ..."
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
for package in "${packages[@]}"; do
    if apt-cache show "$package" > /dev/null 2>&1; then
        apt-get -qq install -y --no-install-recommends "$package" > /dev/null || continue
        hash -r
        is_enough java && exit 0
    fi
done
fail "apt could not provide Java $needed or newer (tried: ${packages[*]})." \
    "Install a JDK or JRE $needed or newer by hand, or point JAVA_HOME at one, and run make again."

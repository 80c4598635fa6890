#!/usr/bin/env bash
# Writes constraints.txt: the exact versions that a fresh install of pyproject.toml's ranges gives today.
# Usage: tools/lock.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."

python=${1:-python3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$python" -m venv "$scratch/venv"
pip="$scratch/venv/bin/python -m pip --disable-pip-version-check"
$pip install -q --upgrade pip setuptools
$pip install -q --no-build-isolation -e '.[dev]'
{
    echo "# Exact versions of everything that the project and its tools install. Made by 'make lock'; do not edit."
    $pip freeze --all --exclude-editable | LC_ALL=C sort -f
} > "$scratch/constraints.txt"
cp "$scratch/constraints.txt" constraints.txt

#!/usr/bin/env bash
# Builds the package: a wheel, and the same as cql.zip, a name that spark-submit --py-files takes.
# Usage: tools/package.sh [PYTHON [FOLDER]]
set -euo pipefail
cd "$(dirname "$0")/.."

python=${1:-python3}
folder=${2:-dist}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# From a copy, because setuptools packs whatever an earlier build has left beside the sources.
cp -r pyproject.toml README.md LICENSE grammar cql planner shedding runtime repl "$scratch"
"$python" -m pip --disable-pip-version-check wheel -q --no-deps --no-build-isolation -w "$scratch/wheel" "$scratch"
mkdir -p "$folder"
cp "$scratch"/wheel/*.whl "$folder"
cp "$scratch"/wheel/*.whl "$folder/cql.zip"

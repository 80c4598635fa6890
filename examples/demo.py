"""The demonstration that `make demo` runs: continuous queries on local Spark through a burst of load."""

import sys

NOT_YET = """\
The demo cannot run yet. It registers continuous queries over generated streams and runs them on Spark, and
this version of the project has no Spark runtime: it can check CQL and plan it, but not execute it. Until the
runtime is there, `.venv/bin/cql explain FILE` shows the plan of what a script of yours registers.
"""


def main() -> int:
    sys.stderr.write(NOT_YET)
    return 1


if __name__ == "__main__":
    sys.exit(main())

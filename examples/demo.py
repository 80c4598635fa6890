"""The demonstration that `make demo` runs: continuous queries on local Spark through a burst of load."""

import sys

NOT_YET = """\
The demo cannot run yet. It registers continuous queries over generated streams and runs them on Spark, and
this version of the project has no Spark runtime: it can parse, bind and check CQL, but not execute it. Until
the runtime is there, `.venv/bin/cql check FILE` shows what the project does with a script of yours.
"""


def main() -> int:
    sys.stderr.write(NOT_YET)
    return 1


if __name__ == "__main__":
    sys.exit(main())

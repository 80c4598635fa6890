"""The demonstration that `make demo` runs: continuous queries on local Spark through a burst of load."""

import sys

NOT_YET = """\
The demo cannot run yet. It registers continuous queries over endless generated streams on Spark and sheds load,
and this version of the project runs queries over files only, without shedding. Until the rest is there,
`.venv/bin/cql run FILE` runs a script of yours on Spark, and with `--engine local` in its own process.
"""


def main() -> int:
    sys.stderr.write(NOT_YET)
    return 1


if __name__ == "__main__":
    sys.exit(main())

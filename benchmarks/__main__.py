"""`python -m benchmarks` lists the benchmarks; `python -m benchmarks NAME` runs one.

Descriptions are read from the source text, so that listing imports no benchmark, and thus no Spark.
"""

import ast
import difflib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

USAGE = "usage: python -m benchmarks [NAME]"


def available() -> dict[str, str]:
    """The first docstring line of every benchmark, by name."""
    modules = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return {module.stem: _description(module) for module in modules}


def main(arguments: Sequence[str]) -> int:
    benchmarks = available()
    match arguments:
        case []:
            print(_listing(benchmarks))
            return 0
        case [name] if name in benchmarks:
            importlib.import_module(f"benchmarks.{name}").main()
            return 0
        case [name] if not name.startswith("-"):
            print(_unknown(name, benchmarks), file=sys.stderr)
            return 2
        case ["-h" | "--help"]:
            print(f"{USAGE}\n\n{_listing(benchmarks)}")
            return 0
        case _:
            print(USAGE, file=sys.stderr)
            return 2


def _description(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    return docstring.splitlines()[0] if docstring else "(no description)"


def _listing(benchmarks: dict[str, str]) -> str:
    if not benchmarks:
        return "There are no benchmarks yet."
    width = max(map(len, benchmarks))
    lines = [f"  {name:<{width}}  {description}" for name, description in benchmarks.items()]
    return "\n".join(["Benchmarks (make bench NAME=... runs one):", *lines])


def _unknown(name: str, benchmarks: dict[str, str]) -> str:
    near = difflib.get_close_matches(name, benchmarks, n=1)
    suggestion = f" Did you mean '{near[0]}'?" if near else ""
    return f"error: there is no benchmark '{name}'.{suggestion}\n{_listing(benchmarks)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

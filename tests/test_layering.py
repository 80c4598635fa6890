"""The layout is the architecture: of our packages, each imports only itself and those before it.

So it is with the rooms of `runtime`, imports inside functions included.

The one exception is the facade. Users import `cql` only, so `cql/__init__.py`, `cql/engine.py` and `cql/query.py` may
reach the packages after it, and `cql/formats.py` the connectors, but inside functions or for the type checker only, so
that importing `cql` stays quick and free of Spark.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ("grammar", "cql", "planner", "shedding", "runtime", "repl")
ROOMS = (
    "user_errors",
    "columns",
    "time",
    "exact_sums",
    "state",
    "expressions",
    "aggregates",
    "joins",
    "operators",
    "engine",
    "connectors",
    "delivery",
    "reports",
    "controllers",
    "network",
    "state_inspection",
    "local",
    "spark",
)
"""The rooms of `runtime`, each of which imports only itself and those before it."""
NOT_SHIPPED = {"tests", "benchmarks", "examples", "tools"}
FACADE = {Path("cql/__init__.py"), Path("cql/engine.py"), Path("cql/query.py"), Path("cql/formats.py")}
HEAVY = ("pyspark", "pandas", "pyarrow", "numpy")

MODULES = sorted(path.relative_to(ROOT) for package in ORDER for path in (ROOT / package).rglob("*.py"))


@dataclass(frozen=True)
class Import:
    package: str
    line: int
    in_function: bool


def imports(module: Path, source: str) -> Iterator[Import]:
    """The top-level package of every import in `source`, literal `import_module("...")` calls included."""

    def walk(node: ast.AST, in_function: bool) -> Iterator[Import]:
        for name in _imported_names(module, node):
            yield Import(name.partition(".")[0], getattr(node, "lineno", 0), in_function)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        inside = inside or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    return walk(ast.parse(source, str(module)), in_function=False)


def _imported_names(module: Path, node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(level=0, module=str(name)):
            return [name]
        case ast.ImportFrom(level=level, names=names, module=name):
            # `from . import a` in p/q.py is about p; one dot more and it leaves the package for its siblings.
            base = module.parts[:-level]
            return [base[0]] if base else [name] if name else [alias.name for alias in names]
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [module.parts[0] if name.startswith(".") else name]
        case _:
            return []


def violations(module: Path, source: str) -> list[str]:
    own = ORDER.index(module.parts[0])
    later = set(ORDER[own + 1 :])
    found = []
    for item in imports(module, source):
        if item.package in NOT_SHIPPED:
            found.append(f"{module}:{item.line}: imports {item.package}, which is not part of the product")
        elif item.package in later and module not in FACADE:
            found.append(f"{module}:{item.line}: {module.parts[0]} must not import {item.package}")
        elif item.package in later and not item.in_function:
            found.append(
                f"{module}:{item.line}: the facade may import {item.package} only inside a function or for types"
            )
    return found


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_imports_point_down(module: Path) -> None:
    found = violations(module, (ROOT / module).read_text(encoding="utf-8"))
    assert not found, "\n".join(["imports go " + " <- ".join(ORDER), *found])


def room_violations(module: Path, source: str) -> list[str]:
    """The imports by which a room of `runtime` reaches one after it."""
    if len(module.parts) < 3 and module.stem == "__init__":
        return []
    own = ROOMS.index(Path(module.parts[1]).stem)
    found = []
    for node in ast.walk(ast.parse(source, str(module))):
        for name in _full_names(module, node):
            package, _, rest = name.partition(".")
            room = rest.partition(".")[0]
            if package == "runtime" and room and (room not in ROOMS or ROOMS.index(room) > own):
                line = getattr(node, "lineno", 0)
                found.append(f"{module}:{line}: {ROOMS[own]} must not import {room}")
    return found


def _full_names(module: Path, node: ast.AST) -> list[str]:
    """The modules that are imported by a node, all parts of their names."""
    if not isinstance(node, ast.ImportFrom):
        return _imported_names(module, node)
    base = [*module.parts[: -node.level], *filter(None, [node.module])] if node.level else [node.module or ""]
    return [".".join(base)] if len(base) > 1 or "." in base[0] else [f"{base[0]}.{each.name}" for each in node.names]


@pytest.mark.parametrize("module", [each for each in MODULES if each.parts[0] == "runtime"], ids=str)
def test_rooms_of_the_runtime_import_down(module: Path) -> None:
    found = room_violations(module, (ROOT / module).read_text(encoding="utf-8"))
    assert not found, "\n".join(["imports go " + " <- ".join(ROOMS), *found])


def test_only_the_host_of_spark_knows_spark() -> None:
    rest = [each for each in MODULES if each.parts[0] == "runtime" and each.parts[1] != "spark"]
    found = [
        f"{module}:{item.line}: imports {item.package}"
        for module in rest
        for item in imports(module, (ROOT / module).read_text(encoding="utf-8"))
        if item.package in ("pyspark", "py4j")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source", "allowed"),
    [
        ("runtime/state/store.py", "from runtime.columns.batch import Ints", True),
        ("runtime/state/store.py", "from runtime import columns", True),
        ("runtime/state/store.py", "from runtime.engine import executor", False),
        ("runtime/state/store.py", "from ..engine import executor", False),
        ("runtime/state/store.py", "def f():\n    import runtime.spark.host", False),
        ("runtime/state/store.py", "if TYPE_CHECKING:\n    from runtime import local", False),
        ("runtime/state/store.py", "from runtime.attic import batch", False),
        ("runtime/local/run.py", "import runtime.spark.host", False),
        ("runtime/spark/host.py", "import runtime.reports.progress", True),
    ],
)
def test_the_rule_for_rooms_tells_good_imports_from_bad(module: str, source: str, allowed: bool) -> None:
    assert (room_violations(Path(module), source) == []) is allowed


def test_every_room_says_what_it_is_for() -> None:
    folders = sorted(path for path in (ROOT / "runtime").iterdir() if path.is_dir() and path.name != "__pycache__")
    assert {path.name for path in folders} <= set(ROOMS)
    for path in folders:
        assert ast.get_docstring(ast.parse((path / "__init__.py").read_text())), f"{path} does not say what it is for"


@pytest.mark.parametrize(
    ("module", "source", "allowed"),
    [
        ("planner/rules.py", "import cql.types", True),
        ("planner/rules.py", "from planner import plan", True),
        ("planner/rules.py", "from . import plan", True),
        ("planner/rules/push.py", "from ..plan import Filter", True),
        ("planner/rules.py", "import json, lark", True),
        ("planner/rules.py", "import runtime", False),
        ("planner/rules.py", "from runtime.spark import lower", False),
        ("planner/rules.py", "def f():\n    import runtime", False),
        ("planner/rules.py", "if TYPE_CHECKING:\n    import runtime", False),
        ("planner/rules.py", "from .. import runtime", False),
        ("planner/rules.py", "importlib.import_module('runtime.spark')", False),
        ("grammar/__init__.py", "import cql", False),
        ("repl/cli.py", "import runtime, shedding", True),
        ("repl/cli.py", "from tests import conftest", False),
        ("cql/engine.py", "def start():\n    from runtime import spark", True),
        ("cql/engine.py", "class E:\n    def start(self):\n        import planner", True),
        ("cql/engine.py", "if TYPE_CHECKING:\n    import runtime", True),
        ("cql/engine.py", "import runtime", False),
        ("cql/engine.py", "class E:\n    import runtime", False),
        ("cql/binder/engine.py", "def start():\n    import runtime", False),
    ],
)
def test_the_rule_tells_good_imports_from_bad(module: str, source: str, allowed: bool) -> None:
    assert (violations(Path(module), source) == []) is allowed


def test_importing_cql_loads_nothing_heavy() -> None:
    program = f"import cql, sys; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [], f"import cql also imports {result.stdout.strip()}"

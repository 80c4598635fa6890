"""CQL on Spark: continuous queries over streams and relations.

>>> catalog = Catalog()
>>> catalog.execute("CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at")
>>> query = bind("SELECT auction, MAX(price) FROM bid [Range 1 Minute] GROUP BY auction", catalog)
>>> [str(column.type) for column in query.schema]
['INT', 'INT']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cql.bound import Rel
from cql.catalog import Catalog
from cql.errors import Code, CqlError, Diagnostic
from cql.parsing import parse_query
from cql.source import SourceText

if TYPE_CHECKING:
    from cql.engine import Engine
    from planner.plan import Plan

    __version__: str

__all__ = ["Catalog", "Code", "CqlError", "Diagnostic", "Engine", "bind", "compile"]


def __getattr__(name: str) -> object:
    """Load the engine, and look up the version of the package, when they are asked for."""
    if name == "Engine":
        from cql.engine import Engine

        return Engine
    if name == "__version__":
        from importlib.metadata import version

        return version("cql-on-spark")
    raise AttributeError(f"module 'cql' has no attribute '{name}'")


def bind(text: str, catalog: Catalog, name: str = "<query>") -> Rel:
    """Return the bound tree of a query; raises `CqlError` with everything that is wrong."""
    from cql.binder import bind_query

    try:
        return bind_query(parse_query(text), catalog).tree
    except CqlError as error:
        raise CqlError(error.diagnostics, SourceText(name, text)) from None


def compile(text: str, catalog: Catalog, name: str = "query") -> Plan:
    """Compile a query to a plan; raises `CqlError` with everything that is wrong.

    >>> catalog = Catalog()
    >>> catalog.execute("CREATE STREAM s (k INT, t INT) TIMESTAMP BY t")
    >>> [operator.kind for operator in compile("SELECT k FROM s WHERE k > 1", catalog).operators]
    ['source', 'select', 'project', 'output']
    """
    from planner.plan import combine, compile_query

    tree = bind(text, catalog)
    try:
        return combine([compile_query(name, tree)])
    except CqlError as error:
        raise CqlError(error.diagnostics, SourceText(f"<{name}>", text)) from None

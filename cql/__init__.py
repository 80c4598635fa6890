"""CQL on Spark: continuous queries over streams and relations.

>>> catalog = Catalog()
>>> catalog.execute("CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at")
>>> query = bind("SELECT auction, MAX(price) FROM bid [Range 1 Minute] GROUP BY auction", catalog)
>>> [str(column.type) for column in query.schema]
['INT', 'INT']
"""

from __future__ import annotations

from cql.bound import Rel
from cql.catalog import Catalog
from cql.errors import Code, CqlError, Diagnostic, fail
from cql.parsing import parse_query
from cql.source import Source

__all__ = ["Catalog", "Code", "CqlError", "Diagnostic", "bind", "compile"]


def bind(text: str, catalog: Catalog, name: str = "<query>") -> Rel:
    """Return the bound tree of a query; raises `CqlError` with everything that is wrong."""
    from cql.binder import bind_query

    try:
        return bind_query(parse_query(text), catalog).tree
    except CqlError as error:
        raise CqlError(error.diagnostics, Source(name, text)) from None


def compile(text: str, catalog: Catalog) -> Rel:
    """Compile a query to a plan: needs the planner, which this version does not have yet."""
    bind(text, catalog)
    raise fail(Code.NOT_AVAILABLE, "the planner is not part of this version yet", hint="cql.bind checks a query")

"""From syntax tree to bound tree: names are resolved, expressions typed, defaults applied.

`bind_query` binds a query against a catalog; `statements.py` binds statements to catalog definitions.
Independent mistakes are gathered and reported together.
"""

from cql.binder.queries import bind_query
from cql.binder.statements import bind_statement, rebind

__all__ = ["bind_query", "bind_statement", "rebind"]

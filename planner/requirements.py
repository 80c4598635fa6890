"""What a logical plan must be free of, once the rules are done, for there to be a physical one."""

from __future__ import annotations

from cql.bound import Rel, RowNumber, direct_inputs
from cql.errors import Code, fail


def require_no_row_number(rel: Rel) -> None:
    """Raise CANNOT_PLAN if a plan still numbers rows without a limit."""
    if isinstance(rel, RowNumber):
        raise fail(
            Code.CANNOT_PLAN,
            f"ROW_NUMBER '{rel.name}' has no limit, so that one row can change the numbers of all others",
            rel.span,
            hint=f"ask for the first rows only in the query around it: WHERE {rel.name} <= 10",
        )
    for below in direct_inputs(rel):
        require_no_row_number(below)

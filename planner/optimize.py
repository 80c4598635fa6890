"""From a bound query to the logical plan that operators are made of: all rewrite rules, in order.

The result holds no subqueries, no row numbers without a limit, no joins that do not know their keys, and no set
operations but those of bags. Rules that are switched off take away from speed, never from answers; but a plan
from which they would have removed such a node cannot be built.
"""

from __future__ import annotations

from collections.abc import Callable

from cql.bound import Rel
from planner.correlation import require_no_subqueries
from planner.invariants import verify as verify_invariants
from planner.requirements import require_no_row_number
from planner.rewriting import AppliedRule, Rewriter
from planner.rules import STAGES

_REQUIRED_AFTER: dict[str, Callable[[Rel], None]] = {
    "subqueries": require_no_subqueries,
    "normal form": require_no_row_number,
}
"""What a stage has to have got rid of; otherwise the query cannot be planned, and the error says why."""


def optimize(
    root: Rel, disabled: frozenset[str] = frozenset(), verify: Callable[[Rel], None] | None = verify_invariants
) -> tuple[Rel, list[AppliedRule]]:
    """Return the plan of a bound query, and what each rule did on the way.

    `disabled` names rules to leave out, `verify` is called with the plan after each change and raises
    AssertionError if an invariant is broken. Raises CqlError for a query that cannot be planned.
    """
    rewriter = Rewriter(STAGES, disabled, verify)
    plan = root
    for stage in STAGES:
        plan = rewriter.run(stage, plan)
        check = _REQUIRED_AFTER.get(stage.name)
        if check is not None:
            check(plan)
    return plan, rewriter.steps

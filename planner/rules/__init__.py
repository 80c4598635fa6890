"""The rewrite rules: one rule, one file, one function; and the order in which they run.

The stages run one after the other. Within a stage the rules run in order, again and again, until none of them
finds anything; so what counts inside a stage is that its rules do not undo each other, and the order only saves
passes. Between stages the order matters, and each stage says why it stands where it does.
"""

from __future__ import annotations

from planner.rewriting import Rewrite, Stage
from planner.rules.connect_joins import connect_joins
from planner.rules.copy_key_filter_across_join import copy_key_filter_across_join
from planner.rules.distinct_of_groups import distinct_of_groups
from planner.rules.drop_unused_row_number import drop_unused_row_number
from planner.rules.exists_of_aggregate import exists_of_aggregate
from planner.rules.exists_to_mark import exists_to_mark
from planner.rules.exists_to_semijoin import exists_to_semijoin
from planner.rules.extract_equi_keys import extract_equi_keys
from planner.rules.filter_into_join import filter_into_join
from planner.rules.in_to_exists import in_to_exists
from planner.rules.joins_to_multijoin import joins_to_multijoin
from planner.rules.merge_filters import merge_filters
from planner.rules.merge_project_into_aggregate import merge_project_into_aggregate
from planner.rules.merge_projects import merge_projects
from planner.rules.merge_top_n import merge_top_n
from planner.rules.now_join_to_stream_join import now_join_to_stream_join
from planner.rules.project_join_inputs import project_join_inputs
from planner.rules.prune_columns import prune_columns
from planner.rules.pull_project_above_join import pull_project_above_join
from planner.rules.pull_project_above_window import pull_project_above_window
from planner.rules.push_condition_below_join import push_condition_below_join
from planner.rules.push_filter_below_aggregate import push_filter_below_aggregate
from planner.rules.push_filter_below_distinct import push_filter_below_distinct
from planner.rules.push_filter_below_group_top_n import push_filter_below_group_top_n
from planner.rules.push_filter_below_join import push_filter_below_join
from planner.rules.push_filter_below_project import push_filter_below_project
from planner.rules.push_filter_below_set_operation import push_filter_below_set_operation
from planner.rules.push_filter_below_stream_operator import push_filter_below_stream_operator
from planner.rules.push_filter_below_window import push_filter_below_window
from planner.rules.remove_identity_project import remove_identity_project
from planner.rules.remove_istream_of_unbounded import remove_istream_of_unbounded
from planner.rules.remove_redundant_distinct import remove_redundant_distinct
from planner.rules.remove_rstream_of_now import remove_rstream_of_now
from planner.rules.remove_unbounded_of_istream import remove_unbounded_of_istream
from planner.rules.row_number_to_top_n import row_number_to_top_n
from planner.rules.scalar_subquery_to_join import scalar_subquery_to_join
from planner.rules.set_operation_to_distinct import set_operation_to_distinct
from planner.rules.simplify_predicates import simplify_predicates
from planner.rules.split_filters import split_filters

__all__ = ["RULES", "STAGES"]

_FILTERS: tuple[Rewrite, ...] = (
    simplify_predicates,
    split_filters,
    push_filter_below_project,
    push_filter_below_join,
    push_filter_below_set_operation,
    push_filter_below_distinct,
    push_filter_below_aggregate,
    push_filter_below_group_top_n,
    push_filter_below_window,
    push_filter_below_stream_operator,
)
"""Filters sink, each conjunct by itself, as deep as they may: less is stored and less is joined."""

_PROJECTIONS: tuple[Rewrite, ...] = (
    merge_projects,
    remove_identity_project,
    merge_project_into_aggregate,
    pull_project_above_window,
    pull_project_above_join,
    prune_columns,
)
"""Projections rise and merge, so that views leave no trace between the operators that count; what nobody reads
goes."""

_CONDITIONS: tuple[Rewrite, ...] = (
    filter_into_join,
    push_condition_below_join,
    extract_equi_keys,
    copy_key_filter_across_join,
)
"""Conditions of joins: what reads several inputs goes into the join, what reads one goes below it, equalities are
its keys, and what is said of one side's keys is said of the other's."""

STAGES: tuple[Stage, ...] = (
    # Subqueries become joins first, because no later rule looks into expressions: all of them see joins only.
    # Simple conditions are needed for it (NOT NOT EXISTS is an EXISTS, a conjunct can become a semijoin where a
    # part of an OR cannot), and filters sink to the input they read, so that the semijoin is made there. Only
    # these filters move here: correlated ones stay where decorrelation finds them.
    Stage(
        "subqueries",
        (
            simplify_predicates,
            split_filters,
            push_filter_below_project,
            push_filter_below_join,
            in_to_exists,
            exists_of_aggregate,
            exists_to_semijoin,
            exists_to_mark,
            scalar_subquery_to_join,
        ),
    ),
    # The bulk: filters down, projections up, and every rule that recognises a shape. They are in one stage since
    # each prepares the ground for others: a filter that has sunk past a projection makes a top-n visible, a
    # projection that has gone makes two joins meet, a stream operator that has gone lets a filter sink further.
    # All of them only ever move things in one direction, so that they come to an end. Joins are put into a connected
    # order here, before some of them become stream joins, which probe their relations in this order.
    Stage(
        "normal form",
        (
            *_FILTERS,
            row_number_to_top_n,
            drop_unused_row_number,
            merge_top_n,
            *_PROJECTIONS,
            *_CONDITIONS,
            connect_joins,
            set_operation_to_distinct,
            distinct_of_groups,
            remove_redundant_distinct,
            remove_rstream_of_now,
            remove_istream_of_unbounded,
            remove_unbounded_of_istream,
            now_join_to_stream_join,
        ),
    ),
    # Multiway joins come after stream joins: Rstream(S [Now] ⋈ R1 ⋈ R2) is to probe R1 and R2, not to become a
    # join of three relations. What a multiway join tests besides its keys may read one input only, and sinks.
    Stage("multiway joins", (joins_to_multijoin, *_FILTERS, *_CONDITIONS)),
    # Last, what would stand in the way of the other rules: filters in one piece again, in an order that does not
    # depend on how they were written, and projections between joins.
    Stage("finish", (merge_filters, project_join_inputs)),
)
"""The pipeline. Every rule can be switched off by name and no answer changes."""

RULES: dict[str, Rewrite] = {rule.__name__: rule for stage in STAGES for rule in stage.rules}
"""All rules by name, in the order in which they first run."""

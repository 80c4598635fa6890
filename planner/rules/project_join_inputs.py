"""What feeds a join passes on only the columns that are read above."""

from __future__ import annotations

from cql.bound import Rel
from planner.column_pruning import with_fewer_columns_below


def project_join_inputs(node: Rel) -> Rel | None:
    """Turn `π[a] ((X ⋈ Y) ⋈ Z)` into `π[a] (π[columns that are read] (X ⋈ Y) ⋈ Z)`.

        Select S3.B From S1 [Rows 9], S2 [Rows 9], S3 [Rows 9] Where S1.A = S2.A and S2.B = S3.B
        ->   the first join passes S2.B on and nothing else

    Law: joins treat each column on its own. Only joins and aggregates get such a projection, and only below a
    join, which would store the other columns: a window's own columns are stored for others, too. The rules
    that bring joins together want these projections gone, so this one comes last.
    """
    return with_fewer_columns_below(node, project_joins=True)

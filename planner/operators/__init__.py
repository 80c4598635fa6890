"""The operators of a physical plan: those of STREAM's table, as immutable models that describe themselves.

An operator names its inputs by id and says what it computes. Its id is a hash of exactly that, so that recompiling
gives the same ids and equal operators of different queries are one operator. Columns are positions; names are for
reading only and do not enter the id.

Each module here has one kind of operator, or a few that belong together; what does their work is registered in
`runtime/operators/`. Nobody else has a list of kinds: what is asked of all of them is in `planner/operators/node.py`.
"""

# ruff: noqa: F403, I001

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from planner.operators.node import OutputColumn as OutputColumn
from planner.operators.node import InputEdge as InputEdge
from planner.operators.node import KINDS
from planner.operators.node import Operator as Operator
from planner.operators.node import Placement as Placement
from planner.operators.node import SortBy as SortBy
from planner.operators.node import Tick as Tick
from planner.operators.node import identified as identified
from planner.operators.node import output_names as output_names

# From sources to results, which is how documents list them.
from planner.operators.sources import *
from planner.operators.stateless import *
from planner.operators.sample import *
from planner.operators.windows import *
from planner.operators.joins import *
from planner.operators.sets import *
from planner.operators.aggregate import *
from planner.operators.top_n import *
from planner.operators.streams import *
from planner.operators.drops import *
from planner.operators.output import *

OPERATOR_TYPES: tuple[type[Operator], ...] = tuple(KINDS)

if TYPE_CHECKING:
    AnyOperator = Operator
else:
    AnyOperator = Annotated[reduce(or_, OPERATOR_TYPES), Field(discriminator="kind")]

"""What all operators of a plan have: columns, inputs, a place to run in, an id, and a description of their kind.

A kind of operator describes itself: whatever the planner, the shedder, EXPLAIN or a listing of state want to know of
operators is asked of the node, in the methods of `Operator`. Whoever adds a kind has one list of questions to answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from cql.bound import Expr, SortKey, WindowSpec
from cql.bound.relations import Names as Names
from cql.intervals import TimeDomain
from planner.costs import Estimate
from planner.json_codec import ExprField, TypeField
from planner.operators.state_needs import Facts, SynopsisNeed

Placement = Literal["source", "hash", "single"]

Adapted = Literal["nothing", "rows", "comparisons", "memory"]
"""What an operator does more or less of, as a controller decides."""


KINDS: list[type[Operator]] = []
"""The kinds of operators that there are, as they are defined: those whose class gives `kind` a value."""


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class OutputColumn(Model):
    """A column that an operator puts out."""

    name: str
    type: TypeField
    nullable: bool


class InputEdge(Model):
    """An edge of the plan: whose output is read, and how it gets there.

    `local` stays in the bucket; `hash` sends each element to the bucket of its keys; `single` sends
    everything to one bucket.
    """

    operator: str
    route: Literal["local", "hash", "single"] = "local"
    keys: tuple[ExprField, ...] = ()


class SortBy(Model):
    column: int
    descending: bool
    nulls_first: bool

    @classmethod
    def of(cls, key: SortKey) -> SortBy:
        return cls(column=key.column, descending=key.descending, nulls_first=key.nulls_first)


class Tick(Model):
    """What makes an Rstream speak: the elements of a source, or the multiples of a slide once it has any."""

    source: str
    slide: int | None = None


class TimeDemand(NamedTuple):
    """At which instants an operator needs its inputs: a row of the table in `shedding/demand.py`."""

    kind: Literal["stream", "log", "static", "same", "window", "count", "difference", "contents", "probe"]
    length: int = 0
    slide: int | None = None


class Operator(Model):
    """What all operators have, and the questions that each kind answers.

    `placement` says where it runs: `source` before anything is sent anywhere, `hash` in every bucket of
    a partitioned fragment, `single` in one bucket, and then `reason` says why. `level` counts how often
    elements have been sent on before they get here.
    """

    id: str = ""
    inputs: tuple[InputEdge, ...] = ()
    columns: tuple[OutputColumn, ...]
    is_stream: bool
    placement: Placement = "source"
    level: int = 0
    reason: str | None = None
    kind: str = ""

    adapts: ClassVar[Adapted] = "nothing"
    is_row_by_row: ClassVar[bool] = False
    """Whether it makes at most one row of each row of its one input, of its values alone, as long as that is there."""
    has_rows_of_input: ClassVar[bool] = True
    """Whether its columns are about rows of its input, not about groups of them."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if cls.model_fields["kind"].default:
            KINDS.append(cls)

    @property
    def fragment(self) -> str:
        """The id of the fragment it belongs to."""
        return "source" if self.placement == "source" else f"{self.placement}-{self.level}"

    # Words

    def headline(self, inputs: Names) -> str:
        """Return what it does, without its inputs."""
        raise NotImplementedError

    def details(self, time: TimeDomain | None, users: Sequence[str]) -> Iterator[str]:
        """Yield lines about what it loses; `time` is the clock of its sources, `users` are the queries it serves."""
        return iter(())

    # Cost and state

    def estimate(self) -> Estimate:
        """Return what an element costs, and how many come out, before anything has been measured."""
        raise NotImplementedError

    def facts(self, below: Sequence[Facts]) -> Facts:
        """Return what is known of its output, from what is known of its inputs."""
        raise NotImplementedError

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        """Return the synopses that it needs."""
        raise NotImplementedError

    @property
    def expiry(self) -> str:
        """When rows leave the relation that it puts out."""
        return "when the input retracts them"

    @property
    def pair_condition(self) -> Expr | None:
        """The condition of a join that has no equal keys to find pairs by."""
        return None

    @property
    def window_spec(self) -> WindowSpec | None:
        """The window that it is, if it is one."""
        return None

    @property
    def counts_in(self) -> str | None:
        """The name of the order in which it counts elements, if that is not the one in which they come."""
        return None

    @property
    def computed(self) -> tuple[Expr, ...]:
        """The expressions of a row that its columns are, if it computes them."""
        return ()

    @property
    def views(self) -> tuple[str, ...]:
        """The roles of the synopses whose rows it reads in their stores; others it keeps in a form of its own."""
        return ()

    @property
    def goes_by(self) -> tuple[str, ...]:
        """The sources whose instants it goes by, whether or not it reads them."""
        return ()

    @property
    def watches(self) -> tuple[str, ...]:
        """The sources of which it has to know all instants."""
        return ()

    # Lifetimes and weights

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        """Tell whether it never takes back a row before the end it came with, given whether its inputs do."""
        raise NotImplementedError

    def is_netted(self, below: Sequence[bool]) -> bool:
        """Tell whether no row ever both enters and leaves at one instant, given whether that is so of its inputs."""
        raise NotImplementedError

    # Losses

    @property
    def loses_soundly(self) -> bool:
        """Whether it makes fewer rows of fewer rows, never other ones."""
        raise NotImplementedError

    def time_demand(self, reads_streams: Sequence[bool]) -> TimeDemand:
        """Return at which instants it needs its inputs, given which of them are streams."""
        return TimeDemand("count" if any(reads_streams) else "same")

    # Identity

    def identity(self) -> dict[str, Any]:
        """Return what tells it from operators that are not the same."""
        return self.model_dump(mode="json", exclude={"id", "columns", "reason"})

    def merged(self, equal: Operator) -> Operator:
        """Return what stands for this operator and for one of another query that has the same id."""
        return self


def identified(operator: Operator, salt: str = "") -> Operator:
    """Return an operator with the id that its content gives it; a salt keeps it apart from its equals."""
    content = json.dumps(operator.identity(), sort_keys=True)
    digest = hashlib.sha256((salt + content).encode()).hexdigest()[:8]
    return operator.model_copy(update={"id": f"{operator.kind}-{digest}"})


def output_names(operator: Operator) -> list[str]:
    """Return the names of an operator's columns."""
    return [column.name for column in operator.columns]

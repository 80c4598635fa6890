"""The operators of a physical plan: those of STREAM's table, as immutable models.

An operator names its inputs by id and says what it computes. Its id is a hash of exactly that, so
that recompiling gives the same ids and equal operators of different queries are one operator. Columns
are positions; names are for reading only and do not enter the id.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from cql.bound import EmptyRow, SortKey
from cql.intervals import TimeDomain
from planner.json_codec import CallField, ExprField, TypeField, WindowField
from planner.logical import JoinType

Placement = Literal["source", "hash", "single"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class OutputColumn(_Model):
    """A column that an operator puts out."""

    name: str
    type: TypeField
    nullable: bool


class InputEdge(_Model):
    """An edge of the plan: whose output is read, and how it gets there.

    `local` stays in the bucket; `hash` sends each element to the bucket of its keys; `single` sends
    everything to one bucket.
    """

    operator: str
    route: Literal["local", "hash", "single"] = "local"
    keys: tuple[ExprField, ...] = ()


class SortBy(_Model):
    column: int
    descending: bool
    nulls_first: bool

    @classmethod
    def of(cls, key: SortKey) -> SortBy:
        return cls(column=key.column, descending=key.descending, nulls_first=key.nulls_first)


class Operator(_Model):
    """What all operators have.

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

    @property
    def fragment(self) -> str:
        """The id of the fragment it belongs to."""
        return "source" if self.placement == "source" else f"{self.placement}-{self.level}"


class Source(Operator):
    """A registered stream or relation.

    A static relation is there from the first instant of its query on: `begins` lists the timed sources of the query.
    Queries that join a network while it runs have an `epoch` of their own: they see streams from then on, and
    relations as they are.
    """

    kind: Literal["source"] = "source"
    table: str
    is_relation: bool
    time: TimeDomain | None
    begins: tuple[str, ...] = ()
    epoch: int = 0

    @property
    def feed(self) -> str:
        """The name of what is read: a stream is read once for all, the log of a relation again for each epoch."""
        table = self.table.casefold()
        return table if self.is_stream or not self.epoch else f"{table}@{self.epoch}"


class Ledger(Operator):
    """The changes of a relation as its log has them, but for removals of rows that are not there."""

    kind: Literal["ledger"] = "ledger"
    table: str
    time: TimeDomain


class Select(Operator):
    """Passes what satisfies all predicates; they commute and may be evaluated in any order."""

    kind: Literal["select"] = "select"
    predicates: tuple[ExprField, ...]


class Project(Operator):
    """Computes expressions of each row; duplicates stay."""

    kind: Literal["project"] = "project"
    items: tuple[ExprField, ...]


class SeqWindow(Operator):
    """A bounded window. Ties at one instant are in the order of the one source of the stream, or else by value."""

    kind: Literal["seq-window"] = "seq-window"
    window: WindowField
    time: TimeDomain | None
    order: Literal["source", "value"] = "source"


class BinaryJoin(Operator):
    """Pairs of rows with equal keys that satisfy the residual; outer joins pad with NULLs."""

    kind: Literal["binary-join"] = "binary-join"
    join: Literal["inner", "left", "right", "full"]
    left_keys: tuple[ExprField, ...]
    right_keys: tuple[ExprField, ...]
    residual: ExprField | None


class SelectiveJoin(BinaryJoin):
    """An inner join that compares a row with a part of the other window only, as `schedule` says: some of its ages.

    `windows` is for how many ticks rows of each input are there. Rows are of types, by `types` of their input: pairs
    are worth what `utility` says, and rows of types whose pairs are worth more may look at more. What is found is a
    part of what a `binary-join` finds.
    """

    kind: Literal["selective-join"] = "selective-join"  # type: ignore[assignment]
    schedule: str
    windows: tuple[int, int]
    seed: int
    utility: ExprField | None = None
    types: tuple[tuple[ExprField, ...], tuple[ExprField, ...]] = ((), ())


class DualJoin(BinaryJoin):
    """An inner join of windows of rows in which rows that find few others do not look for them, as `schedule` says.

    They are still found by others. `windows` is how many rows the windows have. What is found is a part of what a
    `binary-join` finds.
    """

    kind: Literal["dual-join"] = "dual-join"  # type: ignore[assignment]
    schedule: str
    windows: tuple[int, int]
    seed: int


class EvictingJoin(Operator):
    """Pairs of rows with equal keys that satisfy the residual, found among the rows that `memory` bytes can hold.

    Rows whose partners are least likely to come are given up before they end, by `policy`; `windows` is for how many
    ticks rows of each input can be there. The inputs share the memory, or have half of it each, as `allocation` says.
    What is found is a part of what a `binary-join` finds.
    """

    kind: Literal["evicting-join"] = "evicting-join"
    left_keys: tuple[ExprField, ...]
    right_keys: tuple[ExprField, ...]
    residual: ExprField | None
    policy: Literal["rand", "prob", "life"]
    memory: int
    allocation: Literal["variable", "fixed"]
    windows: tuple[int, int]
    seed: int

    @property
    def pools(self) -> tuple[tuple[int, ...], ...]:
        """The inputs that share memory; each pool has as much."""
        return ((0, 1),) if self.allocation == "variable" else ((0,), (1,))


class SemiJoin(Operator):
    """The left rows that have a match on the right."""

    kind: Literal["semijoin"] = "semijoin"
    left_keys: tuple[ExprField, ...]
    right_keys: tuple[ExprField, ...]
    residual: ExprField | None


class AntiJoin(Operator):
    """The left rows that have no match on the right."""

    kind: Literal["antijoin"] = "antijoin"
    left_keys: tuple[ExprField, ...]
    right_keys: tuple[ExprField, ...]
    residual: ExprField | None


class MJoin(Operator):
    """A multiway join; what arrives at an input probes the others one after the other."""

    kind: Literal["mjoin"] = "mjoin"
    keys: tuple[tuple[ExprField, ...], ...]
    residual: ExprField | None


class StreamJoin(Operator):
    """Elements of the first input probe the relation of the second as it is at their instant."""

    kind: Literal["stream-join"] = "stream-join"
    left_keys: tuple[ExprField, ...]
    right_keys: tuple[ExprField, ...]
    residual: ExprField | None


class Union(Operator):
    """All rows of both inputs."""

    kind: Literal["union"] = "union"


class Except(Operator):
    """The rows of the left input, each as often as it occurs there more than on the right."""

    kind: Literal["except"] = "except"


class Intersect(Operator):
    """The rows of both inputs, each as often as it occurs in the one where it is rarer."""

    kind: Literal["intersect"] = "intersect"


class DuplicateEliminate(Operator):
    """Every row once."""

    kind: Literal["duplicate-eliminate"] = "duplicate-eliminate"


class Aggregate(Operator):
    """One row for each group, or one row for all.

    `seen` lists the sources whose first element brings the row of an ungrouped aggregate; a row that is always there
    comes with the first element of the query, of the sources that `begins` lists.
    """

    kind: Literal["aggregate"] = "aggregate"
    keys: tuple[ExprField, ...]
    calls: tuple[CallField, ...]
    empty_row: EmptyRow
    seen: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()


class TopN(Operator):
    """The first rows of all, or of each partition; with `numbered` the last column is the row's number."""

    kind: Literal["top-n"] = "top-n"
    partition: tuple[int, ...]
    keys: tuple[SortBy, ...]
    limit: int
    numbered: bool = False


class IStream(Operator):
    """The rows that enter a relation, net of what leaves it at the same instant."""

    kind: Literal["i-stream"] = "i-stream"


class DStream(Operator):
    """The rows that leave a relation, net of what enters it at the same instant."""

    kind: Literal["d-stream"] = "d-stream"


class Tick(_Model):
    """What makes an Rstream speak: the elements of a source, or the multiples of a slide once it has any."""

    source: str
    slide: int | None = None


class RStream(Operator):
    """The whole relation, at every tick or at the instants of its clock."""

    kind: Literal["r-stream"] = "r-stream"
    every_tick: bool
    clock: tuple[Tick, ...]


class Units(_Model):
    """Time cut into units of `length` ticks, each of which is kept or lost as a whole.

    Unit u ends at u * length. No more than `batch` units in a row are lost; `seed` decides which. Whoever has the same
    `schedule` loses the same ones.
    """

    schedule: str
    length: int
    batch: int
    seed: int


class WindowDrop(Operator):
    """Passes the rows that kept units need: those of the last `size` ticks up to the end of each.

    Passing more does no harm: where queries share it, its size is the largest of theirs, and not part of its id.
    `formula` is the size by the rule of the paper, which does not look at where windows line up.
    """

    kind: Literal["window-drop"] = "window-drop"
    units: Units
    size: int
    formula: int


class RandomDrop(Operator):
    """Passes a share of the rows, chosen by a hash of their instants and values."""

    kind: Literal["random-drop"] = "random-drop"
    units: Units


class KeepWindows(Operator):
    """Passes the elements of a stream at the instants of kept units; what it is made of changes every `grain` ticks."""

    kind: Literal["keep-windows"] = "keep-windows"
    units: Units
    grain: int


class Hold(Operator):
    """A relation as it is at the instants of kept units; in between it stays as it was.

    It changes at multiples of `grain` ticks only.
    """

    kind: Literal["hold"] = "hold"
    units: Units
    grain: int


class Output(Operator):
    """The result of a registered query, under its column names; `slides` are those of its windows."""

    kind: Literal["output"] = "output"
    query: str
    slides: tuple[int, ...] = ()


AnyOperator = Annotated[
    Source
    | Ledger
    | Select
    | Project
    | SeqWindow
    | BinaryJoin
    | SelectiveJoin
    | DualJoin
    | EvictingJoin
    | SemiJoin
    | AntiJoin
    | MJoin
    | StreamJoin
    | Union
    | Except
    | Intersect
    | DuplicateEliminate
    | Aggregate
    | TopN
    | IStream
    | DStream
    | RStream
    | WindowDrop
    | RandomDrop
    | KeepWindows
    | Hold
    | Output,
    Field(discriminator="kind"),
]

OPERATOR_TYPES: tuple[type[Operator], ...] = (
    Source,
    Ledger,
    Select,
    Project,
    SeqWindow,
    BinaryJoin,
    SelectiveJoin,
    DualJoin,
    EvictingJoin,
    SemiJoin,
    AntiJoin,
    MJoin,
    StreamJoin,
    Union,
    Except,
    Intersect,
    DuplicateEliminate,
    Aggregate,
    TopN,
    IStream,
    DStream,
    RStream,
    WindowDrop,
    RandomDrop,
    KeepWindows,
    Hold,
    Output,
)

_JOIN_TYPES: dict[JoinType, type[Operator]] = {JoinType.SEMI: SemiJoin, JoinType.ANTI: AntiJoin}


def join_type(kind: JoinType) -> type[Operator]:
    """Return the operator class of a join."""
    return _JOIN_TYPES.get(kind, BinaryJoin)


def identified(operator: Operator, salt: str = "") -> Operator:
    """Return an operator with the id that its content gives it; a salt keeps it apart from its equals."""
    content = operator.model_dump(mode="json", exclude={"id", "columns", "reason", "size", "formula", "slides"})
    for name in ("begins", "epoch"):
        if not content.get(name):
            content.pop(name, None)
    if isinstance(operator, Source):
        content["types"] = [str(column.type) for column in operator.columns]
    digest = hashlib.sha256((salt + json.dumps(content, sort_keys=True)).encode()).hexdigest()[:8]
    kind = content["kind"]
    return operator.model_copy(update={"id": f"{kind}-{digest}"})


def output_names(operator: Operator) -> list[str]:
    """Return the names of an operator's columns."""
    return [column.name for column in operator.columns]

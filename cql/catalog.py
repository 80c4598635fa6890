"""The catalog: streams, relations, views, queries, functions and settings, by name.

Definitions are pydantic models and go to JSON and back. A view or query is kept as its canonical
text together with the settings it was bound under, and is bound again when a catalog is loaded.
Names are looked up without regard to case; streams, relations and views share one namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Self, TypeVar, overload

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    field_serializer,
    model_validator,
)

from cql import bound
from cql.errors import Code, fail, nearest
from cql.functions.aggregates import AGGREGATES
from cql.functions.scalars import CALLABLE
from cql.functions.user import UserAggregate, UserFunction, make_aggregate, make_function
from cql.intervals import TimeDomain
from cql.secrets import shown_options
from cql.settings import Settings
from cql.source import NO_SPAN, Span
from cql.types import DataType, parse_type

FORMAT_VERSION = 1

TypeField = Annotated[
    DataType,
    BeforeValidator(lambda value: parse_type(value) if isinstance(value, str) else value),
    PlainSerializer(str),
]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True)


class ColumnModel(_Model):
    name: str
    type: TypeField
    nullable: bool = True


class External(_Model):
    """Where elements come from or results go: a format of Spark and its options."""

    format: str
    options: dict[str, str] = Field(default_factory=dict)

    @field_serializer("options")
    def _without_secrets(self, options: dict[str, str]) -> dict[str, str]:
        return shown_options(self.format, options)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from (("format", self.format), ("options", shown_options(self.format, self.options)))


_AHEAD = "by how many ticks instants may be ahead, as the settings of a run have it"


class StreamDef(_Model):
    """A stream. Without `timestamp` the instant is the first, unnamed column of the source (STREAM's form)."""

    name: str
    columns: tuple[ColumnModel, ...]
    time: TimeDomain
    timestamp: str | None = None
    delay: int = Field(0, description="how many ticks elements may arrive out of order")
    source: External | None = None
    ahead: int | None = Field(None, exclude=True, description=_AHEAD)

    @model_validator(mode="after")
    def _has_its_timestamp(self) -> Self:
        if self.timestamp is not None and self.timestamp not in [column.name for column in self.columns]:
            raise ValueError(f"the stream '{self.name}' has no column '{self.timestamp}' to be its timestamp")
        return self

    def scan(self, span: Span = NO_SPAN) -> bound.StreamScan:
        """Return the bound node that reads this stream."""
        names = [column.name for column in self.columns]
        at = None if self.timestamp is None else names.index(self.timestamp)
        return bound.StreamScan(self.name, _fields(self.columns), self.time, at, span=span)


class RelationDef(_Model):
    """A relation: a signed log of changes on a clock, or a static table without one.

    The timestamp and sign of a log say when and how the relation changes; they are not columns of it.
    In STREAM's form they are the first two, unnamed columns of the source.
    """

    name: str
    columns: tuple[ColumnModel, ...]
    time: TimeDomain | None = None
    timestamp: ColumnModel | None = None
    sign: ColumnModel | None = None
    declared: tuple[str, ...] = Field((), description="all names in the order of the source, timestamp and sign too")
    source: External | None = None
    ahead: int | None = Field(None, exclude=True, description=_AHEAD)

    def scan(self, span: Span = NO_SPAN) -> bound.RelationScan:
        """Return the bound node that reads this relation."""
        return bound.RelationScan(self.name, _fields(self.columns), self.time, span=span)


class _DefinedByQuery(_Model):
    """Something defined by a query."""

    name: str
    text: str = Field(description="canonical text of the query")
    settings: Settings = Settings()
    depends_on: tuple[str, ...] = ()
    _tree: bound.Rel | None = PrivateAttr(default=None)

    @property
    def tree(self) -> bound.Rel:
        """The bound query."""
        assert self._tree is not None, f"{self.name} is not bound"
        return self._tree

    def attach(self, tree: bound.Rel) -> None:
        """Set the bound query; done once, by the binder."""
        assert self.__pydantic_private__ is not None
        self.__pydantic_private__["_tree"] = tree


class ViewDef(_DefinedByQuery):
    """A named query; it is spliced in wherever it is used."""

    columns: tuple[str, ...] = ()
    is_stream: bool | None = Field(None, description="declared kind, where one was declared")


class QueryDef(_DefinedByQuery):
    """A registered query and where its results go."""

    options: dict[str, str] = Field(default_factory=dict)
    sink: External | None = None
    _utility: bound.Rel | None = PrivateAttr(default=None)

    @property
    def utility(self) -> bound.Rel | None:
        """The bound query that computes what pairs are worth, if that was said."""
        return self._utility

    def attach_utility(self, tree: bound.Rel) -> None:
        """Set what pairs are worth; done once, by the binder."""
        assert self.__pydantic_private__ is not None
        self.__pydantic_private__["_utility"] = tree


Table = StreamDef | RelationDef | ViewDef


def _fields(columns: Sequence[ColumnModel]) -> bound.Schema:
    return tuple(bound.Field(column.name, column.type, column.nullable) for column in columns)


Code_ = TypeVar("Code_", bound=Callable[..., Any])
Class_ = TypeVar("Class_", bound=type)


class Catalog(BaseModel):
    """Everything that statements define.

    >>> catalog = Catalog()
    >>> catalog.execute("CREATE STREAM s (k INT, t INT) TIMESTAMP BY t")
    >>> [table.name for table in catalog.tables()]
    ['s']
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    version: int = FORMAT_VERSION
    streams: dict[str, StreamDef] = Field(default_factory=dict)
    relations: dict[str, RelationDef] = Field(default_factory=dict)
    views: dict[str, ViewDef] = Field(default_factory=dict)
    queries: dict[str, QueryDef] = Field(default_factory=dict)
    functions: dict[str, UserFunction] = Field(default_factory=dict)
    aggregates: dict[str, UserAggregate] = Field(default_factory=dict)
    settings: Settings = Settings()

    # Looking up

    def tables(self) -> Iterator[Table]:
        """Yield streams, relations and views."""
        yield from self.streams.values()
        yield from self.relations.values()
        yield from self.views.values()

    def find(self, name: str) -> Table | None:
        """Return the stream, relation or view of a name, or None."""
        key = name.casefold()
        return self.streams.get(key) or self.relations.get(key) or self.views.get(key)

    def as_read(self, name: str) -> StreamDef | RelationDef:
        """Return a stream or relation with what the settings say of its rows."""
        table = self.table(name)
        assert isinstance(table, StreamDef | RelationDef), "plans read streams and relations"
        return table.model_copy(update={"ahead": self.settings.ticks_ahead(table.time)})

    def table(self, name: str, span: Span = NO_SPAN, also: Sequence[str] = ()) -> Table:
        """Return the stream, relation or view of a name; raises with the nearest names otherwise."""
        found = self.find(name)
        if found:
            return found
        known = [table.name for table in self.tables()] + list(also)
        hint = None if known else "nothing is defined yet: CREATE STREAM name (..) TIMESTAMP BY .."
        candidates = nearest(name, known)
        if name.casefold() in self.queries:
            hint, candidates = "it is a query; to read a result in other queries, CREATE VIEW name AS query", ()
        elif known and not candidates:
            hint = "defined so far: " + ", ".join(known[:8]) + (", .." if len(known) > 8 else "")
        raise fail(Code.UNKNOWN_TABLE, f"there is no stream, relation or view '{name}'", span, hint, candidates)

    def query(self, name: str, span: Span = NO_SPAN) -> QueryDef:
        """Return the registered query of a name; raises with the nearest names otherwise."""
        found = self.queries.get(name.casefold())
        if found:
            return found
        known = [query.name for query in self.queries.values()]
        raise fail(
            Code.UNKNOWN_QUERY,
            f"there is no query '{name}'",
            span,
            hint=None
            if nearest(name, known)
            else f"registered so far: {', '.join(known[:8])}"
            if known
            else "register one: REGISTER QUERY name AS query",
            candidates=nearest(name, known),
        )

    def dependants(self, name: str) -> list[str]:
        """Return the views and queries that use a stream, relation or view directly."""
        key = name.casefold()
        users = (*self.views.values(), *self.queries.values())
        return [user.name for user in users if key in (used.casefold() for used in user.depends_on)]

    # Changing

    def check_free(self, name: str, span: Span = NO_SPAN) -> None:
        """Raise if a stream, relation or view of this name exists."""
        taken = self.find(name)
        if taken:
            what = type(taken).__name__.removesuffix("Def").lower()
            raise fail(
                Code.DUPLICATE_NAME,
                f"there is a {what} '{taken.name}' already",
                span,
                hint=f"choose another name, or DROP {what.upper()} {taken.name} first",
            )

    def define(self, definition: Table | QueryDef) -> None:
        """Add a definition."""
        homes: dict[type, dict[str, Any]] = {
            StreamDef: self.streams,
            RelationDef: self.relations,
            ViewDef: self.views,
            QueryDef: self.queries,
        }
        homes[type(definition)][definition.name.casefold()] = definition

    def drop(self, kind: str, name: str, span: Span = NO_SPAN) -> None:
        """Remove a stream, relation, view or query; raises if it is used or not there."""
        homes: dict[str, dict[str, Any]] = {
            "STREAM": self.streams,
            "RELATION": self.relations,
            "VIEW": self.views,
            "QUERY": self.queries,
        }
        home = homes[kind]
        if name.casefold() not in home:
            if kind == "QUERY":
                self.query(name, span)
            other = self.find(name)
            if other:
                actual = type(other).__name__.removesuffix("Def")
                raise fail(
                    Code.UNKNOWN_TABLE,
                    f"'{other.name}' is a {actual.lower()}, not a {kind.lower()}",
                    span,
                    hint=f"write DROP {actual.upper()} {other.name}",
                )
            self.table(name, span)
        users = [] if kind == "QUERY" else self.dependants(name)
        if users:
            raise fail(
                Code.IN_USE, f"'{name}' is used by {', '.join(users)}", span, hint=f"drop {', '.join(users)} first"
            )
        del home[name.casefold()]

    def set(self, key: str, value: Any, key_span: Span = NO_SPAN, value_span: Span = NO_SPAN) -> None:
        """Change a setting for what is defined from now on."""
        self.settings = self.settings.changed(key, value, key_span, value_span)

    def execute(self, text: str, name: str = "<text>") -> None:
        """Run the statements of a text that define or drop something; raises with all that is wrong."""
        from cql.session import Session

        Session(self).run(text, name)

    # Functions of the user

    @overload
    def function(
        self,
        code: Code_,
        *,
        name: str | None = None,
        arguments: Sequence[str] | None = None,
        returns: str | None = None,
        vectorized: bool = False,
    ) -> Code_: ...

    @overload
    def function(
        self,
        *,
        name: str | None = None,
        arguments: Sequence[str] | None = None,
        returns: str | None = None,
        vectorized: bool = False,
    ) -> Callable[[Code_], Code_]: ...

    def function(
        self,
        code: Code_ | None = None,
        *,
        name: str | None = None,
        arguments: Sequence[str] | None = None,
        returns: str | None = None,
        vectorized: bool = False,
    ) -> Any:
        """Register a Python function, by call or as a decorator.

        One that is `vectorized` takes and returns columns of Arrow instead of values; its types have to be given.

        >>> catalog = Catalog()
        >>> @catalog.function
        ... def double(x: int) -> int:
        ...     return 2 * x
        >>> catalog.functions["double"].returns
        'BIGINT'
        """

        def register(code: Code_) -> Code_:
            made = make_function(code, name, arguments, returns, vectorized)
            self._check_function_name(made.name)
            self.functions[made.name.casefold()] = made
            return code

        return register if code is None else register(code)

    @overload
    def aggregate(
        self,
        code: Class_,
        *,
        name: str | None = None,
        arguments: Sequence[str] | None = None,
        returns: str | None = None,
    ) -> Class_: ...

    @overload
    def aggregate(
        self,
        *,
        name: str | None = None,
        arguments: Sequence[str] | None = None,
        returns: str | None = None,
    ) -> Callable[[Class_], Class_]: ...

    def aggregate(
        self,
        code: Class_ | None = None,
        *,
        name: str | None = None,
        arguments: Sequence[str] | None = None,
        returns: str | None = None,
    ) -> Any:
        """Register an aggregate class (see `cql.functions.user`), by call or as a decorator."""

        def register(code: Class_) -> Class_:
            made = make_aggregate(code, name, arguments, returns)
            self._check_function_name(made.name)
            self.aggregates[made.name.casefold()] = made
            return code

        return register if code is None else register(code)

    def _check_function_name(self, name: str) -> None:
        key = name.casefold()
        if key in CALLABLE or key in AGGREGATES:
            raise fail(
                Code.DUPLICATE_NAME,
                f"there is a built-in function '{name}' already",
                hint="register yours with another name: name='..'",
            )
        if key in self.functions or key in self.aggregates:
            raise fail(Code.DUPLICATE_NAME, f"there is a function '{name}' already")

    # To JSON and back

    def to_json(self) -> str:
        """Return the catalog as JSON; functions go as the place of their code, and secrets of options as `***`."""
        return self.model_dump_json(indent=2)

    @classmethod
    def from_json(cls, text: str, *, trusted: bool = False) -> Catalog:
        """Load a catalog; views and queries are bound again.

        Its functions are Python code that is named in the text, and imported. One that has any is refused unless
        who wrote it is `trusted`.
        """
        from cql.binder import rebind

        try:
            catalog = cls.model_validate_json(text)
        except ValueError as error:
            raise fail(Code.BAD_DEFINITION, f"this is not a catalog: {error}") from None
        if catalog.version != FORMAT_VERSION:
            raise fail(
                Code.BAD_DEFINITION,
                f"this catalog has format version {catalog.version}",
                hint=f"this program reads version {FORMAT_VERSION}",
            )
        coded = (*catalog.functions.values(), *catalog.aggregates.values())
        if coded and not trusted:
            named = ", ".join(f"{each.name} at {each.location}" for each in coded)
            raise fail(
                Code.NOT_TRUSTED,
                f"this catalog names code to import: {named}",
                hint="if you trust who wrote it: Catalog.from_json(text, trusted=True)",
            )
        for each in coded:
            each.trust()
        rebind(catalog)
        return catalog

    def copy_for_trial(self) -> Catalog:
        """Return a catalog that can be changed without changing this one; definitions are shared."""
        homes = ("streams", "relations", "views", "queries", "functions", "aggregates")
        return self.model_copy(update={home: dict(getattr(self, home)) for home in homes})

"""Settings that users change with SET, their values and meanings.

A setting takes effect for the statements after it. The first are part of what a query means: they are written into
the bound tree when a query is bound. The others say how queries are run, and those in force at START count.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from cql.errors import Code, fail, nearest, one_of
from cql.intervals import BadInterval, TimeDomain, parse_interval
from cql.sizes import parse_size
from cql.source import NO_SPAN, Span

OnBadRow = Literal["fail", "skip"]


class Settings(BaseModel):
    """The settings in force; immutable, `changed` gives a new set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    empty_aggregate: Literal["sql", "stream"] = Field(
        "sql",
        description="an aggregate without GROUP BY over no rows gives a row (sql) or none (stream)",
    )
    rstream_clock: Literal["auto", "tick", "element"] = Field(
        "auto",
        description="Rstream speaks at every tick, or where an input has an element or a slide falls; "
        "auto: tick for integer time, element for TIMESTAMP time",
    )
    range_bounds: Literal["half_open", "closed"] = Field(
        "half_open",
        description="[Range T] at t holds (t-T, t] (half_open) or, as the thesis has it, [t-T, t] (closed)",
    )

    unbounded_state: Literal["allow", "refuse"] = Field(
        "allow",
        description="whether a query may be registered whose state grows with the length of a stream",
    )
    on_bad_row: OnBadRow = Field(
        "fail",
        description="a row of a source that does not fit its columns ends the run (fail) or is left out and counted "
        "(skip)",
    )
    max_ahead: str = Field(
        "auto",
        description="a row that is further ahead is a bad row: ahead of the clock on the wall for TIMESTAMP time, of "
        "the rows before it for integer time; auto: 1 day for TIMESTAMP time, off for integer time",
    )

    files: Literal["drain", "follow"] = Field(
        "drain",
        description="a run ends when all files that are there have been read (drain), or goes on, on Spark, with files "
        "that come into folders later (follow)",
    )
    end: Literal["open", "close"] = Field(
        "open",
        description="a run over sources that end stops at the last instant of each query's inputs, and windows with a "
        "slide that end later stay open (open), or goes on until these have ended (close)",
    )
    paths_from: Literal["working_directory", "script"] = Field(
        "working_directory",
        description="where relative paths of files start: at the working directory, or at the folder of the script "
        "that names them",
    )

    scheduler: Literal["chain", "fifo", "round-robin", "greedy"] = Field(
        "chain",
        description="which operator of a running network is next; it changes memory and latency, never results",
    )
    sharing: Literal["on", "off"] = Field(
        "on",
        description="whether queries that run together share operators and stores; it changes no results",
    )

    idle_timeout: str = Field(
        "off",
        description="after what time without rows a stream on Spark no longer holds up the others, such as "
        "'10 seconds'; off: never",
    )

    shedding: Literal["none", "auto", "window", "random", "selective", "dual", "rand", "prob", "life"] = Field(
        "none",
        description="what queries lose when there is more input than can be processed: nothing, whole windows, rows at "
        "random; comparisons of joins (selective, dual); or rows that joins hold: any (rand), or those least likely "
        "to match (prob, life); auto: what fits the query",
    )
    max_gap: int = Field(10, ge=1, description="how many windows in a row a query that sheds may lose")
    weight: float = Field(
        1.0, ge=0, allow_inf_nan=False, description="what an answer of a query is worth beside those of other queries"
    )
    max_memory: str = Field(
        "2 GB",
        description="how much memory the rows and sums that queries keep may take, on Spark those of each bucket; "
        "a run that needs more ends and says which query does; off: as much as there is",
    )
    max_latency: str = Field(
        "off",
        description="from which delay of answers on queries that ask for it shed, such as '5 seconds'; off: never",
    )
    shedding_seed: int = Field(0, description="decides which windows or rows are lost")

    @field_validator("idle_timeout", "max_latency", "max_ahead")
    @classmethod
    def _is_off_or_long(cls, value: str, info: ValidationInfo) -> str:
        if (
            value not in ("off", cls.model_fields[str(info.field_name)].default)
            and parse_interval(value).microseconds() <= 0
        ):
            raise BadInterval("it is longer than nothing")
        return value

    @field_validator("max_memory")
    @classmethod
    def _is_off_or_a_size(cls, value: str) -> str:
        if value != "off":
            parse_size(value)
        return value

    @property
    def memory_bytes(self) -> int | None:
        """How many bytes what is kept may take; None if there is no bound."""
        return None if self.max_memory == "off" else parse_size(self.max_memory)

    @property
    def idle_seconds(self) -> float | None:
        """The timeout of idle streams in seconds; None if there is none."""
        return None if self.idle_timeout == "off" else parse_interval(self.idle_timeout).microseconds() / 1e6

    def ticks_ahead(self, time: TimeDomain | None) -> int | None:
        """Return by how many ticks of a clock rows may be ahead; None if there is no limit."""
        if time is None or self.max_ahead == "off" or (self.max_ahead == "auto" and time is TimeDomain.INTEGER):
            return None
        length = parse_interval("1 day" if self.max_ahead == "auto" else self.max_ahead)
        return length.microseconds() // time.microseconds_per_tick

    def changed(self, key: str, value: Any, key_span: Span = NO_SPAN, value_span: Span = NO_SPAN) -> Settings:
        """Return the settings with one of them changed; raises for an unknown key or value."""
        name = key.lower()
        known = type(self).model_fields
        if name not in known:
            raise fail(
                Code.UNKNOWN_OPTION,
                f"there is no setting '{key}'",
                key_span,
                candidates=nearest(name, known),
                hint=None if nearest(name, known) else "SHOW SETTINGS lists them",
            )
        if isinstance(value, str):
            value = value.lower()
        try:
            return type(self).model_validate(self.model_dump() | {name: value})
        except ValidationError as error:
            detail = error.errors()[0]
            given = detail.get("ctx", {})
            if "expected" in given:
                hint = f"it takes {given['expected'].replace(' or ', ', ')}"
            elif "ge" in given:
                hint = f"it takes {type(self).values_of(name)}, not less than {given['ge']}"
            else:
                hint = detail["msg"].removeprefix("Value error, ")
            raise fail(Code.BAD_OPTION_VALUE, f"'{name}' cannot be {value!r}", value_span, hint=hint) from None

    @classmethod
    def values_of(cls, name: str) -> str:
        """Return the values that a setting takes, in words."""
        kind = cls.model_fields[name].annotation
        if kind in (int, float):
            return "a whole number" if kind is int else "a number"
        if name == "max_memory":
            return "off or a size"
        choices = getattr(kind, "__args__", None)
        if choices:
            return one_of([str(choice) for choice in choices])
        return "off or an interval" if cls.model_fields[name].default == "off" else "auto, off or an interval"

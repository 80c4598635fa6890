"""The options of a format: a model whose fields are the options, each with its meaning, default and type.

Users write options as texts, without regard to the case of their names. A model makes values of them, and errors that
say what an option takes. Completion, documents and the masks of secrets read the same fields.

>>> class Options(FormatOptions):
...     format = "csv"
...     sep: Annotated[Character, OptionNote("between fields", also=("delimiter",))] = ","
>>> Options.of({"DELIMITER": ";", "unheard": "of"}).sep
';'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from cql.errors import Code, CqlError, fail, one_of
from cql.secrets import MASK

Use = Literal["read", "write"]
BOTH: tuple[Use, ...] = ("read", "write")


@dataclass(frozen=True, slots=True)
class OptionNote:
    """What there is to say of an option beside its type and default."""

    meaning: str
    name: str = ""
    """How it is written, if not as the field."""
    also: tuple[str, ...] = ()
    """Other names for it."""
    uses: tuple[Use, ...] = ("read",)
    """Whether sources have it, or sinks, or both."""
    is_secret: bool = False
    """Whether its value is hidden wherever options are shown."""


@dataclass(frozen=True, slots=True)
class OptionField:
    """An option of a format: its description, and the field that holds it."""

    field: str
    option: OptionNote
    default: Any
    is_required: bool

    @property
    def name(self) -> str:
        """How it is written."""
        return self.option.name or self.field

    @property
    def names(self) -> tuple[str, ...]:
        """All names for it, the one that documents use first."""
        return (self.name, *self.option.also)


class FormatOptions(BaseModel):
    """The options of a source or sink of one format, as values."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    format: ClassVar[str] = ""

    @classmethod
    def described(cls, use: Use | None = None) -> Iterator[OptionField]:
        """Yield the options, of sources or sinks only if that is asked for."""
        for field, info in cls.model_fields.items():
            (option,) = (each for each in info.metadata if isinstance(each, OptionNote))
            if use is None or use in option.uses:
                default = None if info.is_required() else info.default
                yield OptionField(field, option, default, info.is_required())

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Return the values of options that are given as texts; those that are none of this model are passed over.

        Raises if one has a value that it cannot have, or one that is needed is not given.
        """
        spelled = {key.casefold(): key for key in reversed([*given])}
        taken: dict[str, str] = {}
        for each in cls.described():
            keys = [spelled[name.casefold()] for name in each.names if name.casefold() in spelled]
            if each.is_required and not (keys and given[keys[0]]):
                raise cls._missing(each)
            if keys:
                taken[each.field] = keys[0]
        try:
            return cls.model_validate({field: given[key] for field, key in taken.items()})
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            field = str(problem["loc"][0])
            raise cls._refused(field, taken[field], given[taken[field]], problem) from None

    @classmethod
    def _missing(cls, needed: OptionField) -> CqlError:
        message = f"the format {cls.format} needs the option '{needed.name}'"
        return fail(Code.BAD_DEFINITION, message, hint=f"write {cls.format} OPTIONS ({needed.name} '..')")

    @classmethod
    def _refused(cls, field: str, key: str, text: str, problem: ErrorDetails) -> CqlError:
        """Return the error that an option cannot have its value."""
        option = next(each.option for each in cls.described() if each.field == field)
        hint = str(problem.get("ctx", {}).get("error", problem["msg"]))
        message = f"the option '{key}' of {cls.format} cannot be '{MASK if option.is_secret else text}'"
        return fail(Code.BAD_OPTION_VALUE, message, hint=hint)


# Values


def _truth(text: Any) -> bool:
    truths = {"true": True, "false": False}
    if str(text).lower() not in truths:
        raise ValueError("it takes true or false")
    return truths[str(text).lower()]


def _character(text: Any) -> str:
    character = {"\\t": "\t"}.get(str(text), str(text))
    if len(character) != 1 or not character.isascii() or character in "\r\n":
        raise ValueError("it takes one character; a tab is '\\t'")
    return character


def _count(text: Any) -> int:
    if not (str(text).isascii() and str(text).isdigit() and int(text) > 0):
        raise ValueError("it takes a whole number above 0")
    return int(text)


Truth = Annotated[bool, BeforeValidator(_truth)]
"""true or false, in any case."""
Character = Annotated[str, BeforeValidator(_character)]
"""One character of ASCII."""
Count = Annotated[int, BeforeValidator(_count)]
"""A whole number above 0."""


def word(*words: str) -> Callable[[Any], str]:
    """Return the check that a text is one of some words, in any case."""

    def check(text: Any) -> str:
        if str(text).lower() not in words:
            raise ValueError(f"it takes {one_of(words)}")
        return str(text).lower()

    return check

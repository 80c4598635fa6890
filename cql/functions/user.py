"""Functions and aggregates written by users in Python, with declared types.

A function is called with one value per argument and returns one value. An aggregate is a class: its
instance is the state of one group.

    class Spread:                                 # the largest value minus the smallest one
        def __init__(self): self.values = []
        def add(self, x): self.values.append(x)
        def result(self): return max(self.values) - min(self.values)
        def remove(self, x): self.values.remove(x)            # optional: without it, groups are recomputed
        def merge(self, other): self.values += other.values   # optional: lets partial states combine
"""

from __future__ import annotations

import datetime
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from cql import types as t
from cql.errors import Code, CqlError, fail
from cql.types import DataType, parse_type

_PYTHON_TYPES: dict[type, DataType] = {
    bool: t.BOOLEAN,
    int: t.BIGINT,
    float: t.DOUBLE,
    str: t.STRING,
    datetime.datetime: t.TIMESTAMP,
}


class _UserCode(BaseModel):
    """Name, declared types, and where the Python object can be imported from."""

    model_config = ConfigDict(frozen=True)

    name: str
    arguments: tuple[str, ...]
    returns: str
    location: str = Field(description="module:qualified name, to import the code again")
    _code: Any = PrivateAttr(default=None)

    @field_validator("arguments", "returns")
    @classmethod
    def _known_types(cls, value: Any) -> Any:
        for text in (value,) if isinstance(value, str) else value:
            parse_type(text)
        return value

    @property
    def argument_types(self) -> tuple[DataType, ...]:
        return tuple(parse_type(text) for text in self.arguments)

    @property
    def return_type(self) -> DataType:
        return parse_type(self.returns)

    @property
    def code(self) -> Any:
        """The Python object; after loading a catalog from JSON it is imported when first used."""
        if self._code is None:
            module, _, path = self.location.partition(":")
            try:
                found: Any = importlib.import_module(module)
                for part in path.split("."):
                    found = getattr(found, part)
            except (ImportError, AttributeError):
                raise fail(Code.UNKNOWN_FUNCTION, f"the code of function '{self.name}' is not at {self.location}",
                           hint="register the function again on this catalog") from None
            self.__pydantic_private__["_code"] = getattr(found, "__cql_code__", found)  # type: ignore[index]
        return self._code


class UserFunction(_UserCode):
    """A scalar function."""


class UserAggregate(_UserCode):
    """An aggregate; what it can do beyond add and result decides how it is maintained."""

    can_remove: bool = False
    can_merge: bool = False


def make_function(
    code: Callable[..., Any], name: str | None, arguments: Sequence[str] | None, returns: str | None
) -> UserFunction:
    """Return the definition of a scalar function, its types declared or taken from annotations."""
    name = name or code.__name__
    if arguments is None or returns is None:
        hints = _hints(code, name)
        parameters = [p.name for p in inspect.signature(code).parameters.values()]
        arguments = arguments or [_declared(hints.get(p), name, f"argument '{p}'") for p in parameters]
        returns = returns or _declared(hints.get("return"), name, "the result")
    return _made(UserFunction, code, name, arguments, returns)


def make_aggregate(
    code: type, name: str | None, arguments: Sequence[str] | None, returns: str | None
) -> UserAggregate:
    """Return the definition of an aggregate class, its types declared or taken from annotations."""
    name = name or code.__name__.lower()
    missing = [method for method in ("add", "result") if not callable(getattr(code, method, None))]
    if missing:
        raise fail(Code.BAD_DEFINITION, f"the aggregate '{name}' has no method {' and no method '.join(missing)}",
                   hint="an aggregate class has __init__(), add(value ..), result(), and may have "
                        "remove(value ..) and merge(other)")
    if arguments is None:
        hints = _hints(code.add, name)  # type: ignore[attr-defined]
        parameters = [p.name for p in inspect.signature(code.add).parameters.values()][1:]  # type: ignore[attr-defined]
        arguments = [_declared(hints.get(p), name, f"argument '{p}' of add") for p in parameters]
    if returns is None:
        returns = _declared(_hints(code.result, name).get("return"), name, "the result")  # type: ignore[attr-defined]
    return _made(
        UserAggregate, code, name, arguments, returns,
        can_remove=callable(getattr(code, "remove", None)), can_merge=callable(getattr(code, "merge", None)),
    )


def _made(model: type[Any], code: Any, name: str, arguments: Sequence[str], returns: str, **more: bool) -> Any:
    if not name.isidentifier():
        raise fail(Code.BAD_DEFINITION, f"'{name}' cannot be the name of a function",
                   hint="pass name='..' with letters, digits and underscores")
    location = f"{code.__module__}:{code.__qualname__}"
    try:
        made = model(name=name, arguments=tuple(arguments), returns=returns, location=location, **more)
    except ValueError as error:
        reason = str(error.errors()[0]["msg"]) if hasattr(error, "errors") else str(error)
        raise fail(Code.UNKNOWN_TYPE, f"function '{name}': {reason}") from None
    made.__pydantic_private__["_code"] = code
    return made


def _hints(code: Any, name: str) -> dict[str, Any]:
    try:
        return get_type_hints(code)
    except Exception:
        raise _undeclared(name, "the annotations") from None


def _declared(annotation: Any, name: str, what: str) -> str:
    found = _PYTHON_TYPES.get(annotation)
    if found is None:
        raise _undeclared(name, what)
    return str(found)


def _undeclared(name: str, what: str) -> CqlError:
    return fail(Code.BAD_DEFINITION, f"function '{name}': the type of {what} is not known",
                hint="annotate with bool, int, float, str or datetime, or pass arguments=[..] and returns='..'")

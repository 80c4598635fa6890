"""Functions and aggregates written by users in Python, with declared types.

A function is called with one value per argument, None for NULL, and returns one value; a vectorized one is called
with a column of Arrow per argument, and returns a column whose rows depend on those of the arguments. An aggregate is a
class: its instance is the state of one group.

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
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

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
    _is_trusted: bool = PrivateAttr(default=False)

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

    def trust(self) -> None:
        """Allow the code to be imported from its location."""
        assert self.__pydantic_private__ is not None
        self.__pydantic_private__["_is_trusted"] = True

    @property
    def code(self) -> Any:
        """The Python object; after loading a trusted catalog from JSON it is imported when first used."""
        if self._code is None:
            if not self._is_trusted:
                raise fail(Code.NOT_TRUSTED, f"the code of function '{self.name}', {self.location}, is not trusted")
            module, _, path = self.location.partition(":")
            try:
                found: Any = importlib.import_module(module)
                for part in path.split("."):
                    found = getattr(found, part)
            except (ImportError, AttributeError, ValueError):
                raise fail(
                    Code.UNKNOWN_FUNCTION,
                    f"the code of function '{self.name}' is not at {self.location}",
                    hint="register the function again on this catalog",
                ) from None
            self.__pydantic_private__["_code"] = getattr(found, "__cql_code__", found)  # type: ignore[index]
        return self._code


@dataclass(frozen=True)
class Vectorized:
    """The code of a function that takes columns and returns one."""

    code: Callable[..., Any]


class UserFunction(_UserCode):
    """A scalar function."""

    vectorized: bool = False

    @property
    def code(self) -> Any:
        """The function, marked if it is vectorized."""
        code = super().code
        return Vectorized(code) if self.vectorized else code


class UserAggregate(_UserCode):
    """An aggregate; what it can do beyond add and result decides how it is maintained."""

    can_remove: bool = False
    can_merge: bool = False


def make_function(
    code: Callable[..., Any],
    name: str | None,
    arguments: Sequence[str] | None,
    returns: str | None,
    vectorized: bool = False,
) -> UserFunction:
    """Return the definition of a scalar function, its types declared or taken from annotations."""
    if not callable(code):
        raise fail(Code.BAD_DEFINITION, f"{code!r} is not a function")
    name = name or str(getattr(code, "__name__", ""))
    made: UserFunction = _made(
        UserFunction,
        code,
        name,
        arguments=_annotated_arguments(code, name) if arguments is None else arguments,
        returns=_annotated_result(code, name) if returns is None else returns,
        vectorized=vectorized,
    )
    _check_takes(code, len(made.arguments), name)
    return made


def make_aggregate(code: type, name: str | None, arguments: Sequence[str] | None, returns: str | None) -> UserAggregate:
    """Return the definition of an aggregate class, its types declared or taken from annotations."""
    if not isinstance(code, type):
        raise fail(Code.BAD_DEFINITION, f"{code!r} is not a class", hint=_SHAPE)
    name = name or code.__name__.lower()
    missing = [method for method in ("add", "result") if not callable(getattr(code, method, None))]
    if missing:
        raise fail(
            Code.BAD_DEFINITION, f"the aggregate '{name}' has no method {' and no method '.join(missing)}", hint=_SHAPE
        )
    methods = {method: getattr(code, method, None) for method in ("add", "result", "remove", "merge")}
    made: UserAggregate = _made(
        UserAggregate,
        code,
        name,
        arguments=_annotated_arguments(methods["add"], name, 1) if arguments is None else arguments,
        returns=_annotated_result(methods["result"], name) if returns is None else returns,
        can_remove=callable(methods["remove"]),
        can_merge=callable(methods["merge"]),
    )
    _check_takes(code, 0, f"{name}()")
    taken = {"add": len(made.arguments), "result": 0, "remove": len(made.arguments), "merge": 1}
    for method, count in taken.items():
        if callable(methods[method]):
            _check_takes(methods[method], 1 + count, f"{name}.{method}")
    return made


_SHAPE = "an aggregate class has __init__(), add(value ..), result(), and may have remove(value ..) and merge(other)"


def _made(model: type[Any], code: Any, name: str, arguments: Sequence[str], returns: str, **more: bool) -> Any:
    if not name.isidentifier():
        raise fail(
            Code.BAD_DEFINITION,
            f"'{name}' cannot be the name of a function",
            hint="pass name='..' with letters, digits and underscores",
        )
    if isinstance(arguments, str):
        raise fail(
            Code.BAD_DEFINITION,
            f"function '{name}': the arguments are a list of types",
            hint=f"write arguments=['{arguments}']",
        )
    location = f"{getattr(code, '__module__', '')}:{getattr(code, '__qualname__', name)}"
    try:
        made = model(name=name, arguments=tuple(arguments), returns=returns, location=location, **more)
    except ValueError as error:
        reason = str(error.errors()[0]["msg"]) if hasattr(error, "errors") else str(error)
        raise fail(Code.UNKNOWN_TYPE, f"function '{name}': {reason}") from None
    made.__pydantic_private__["_code"] = code
    return made


def _check_takes(code: Any, count: int, name: str) -> None:
    """Raise if a function cannot be called with so many values."""
    try:
        inspect.signature(code).bind(*[None] * count)
    except TypeError as error:
        raise fail(Code.BAD_DEFINITION, f"'{name}' does not take what is declared: {error}") from None
    except ValueError:
        return  # Some functions of C have no signature to look at.


def _annotated_arguments(code: Any, name: str, skip: int = 0) -> list[str]:
    hints = _hints(code, name)
    try:
        parameters = list(inspect.signature(code).parameters)
    except ValueError:
        raise _undeclared(name, "the arguments") from None
    return [_declared(hints.get(each), name, f"argument '{each}'") for each in parameters[skip:]]


def _annotated_result(code: Any, name: str) -> str:
    return _declared(_hints(code, name).get("return"), name, "the result")


def _hints(code: Any, name: str) -> dict[str, Any]:
    try:
        return get_type_hints(code)
    except Exception:
        raise _undeclared(name, "the annotations") from None


def _declared(annotation: Any, name: str, what: str) -> str:
    if get_origin(annotation) in (Union, types.UnionType) and type(None) in get_args(annotation):
        annotation, *others = [choice for choice in get_args(annotation) if choice is not type(None)]
        annotation = None if others else annotation
    found = _PYTHON_TYPES.get(annotation) if isinstance(annotation, type) else None
    if found is None:
        raise _undeclared(name, what)
    return str(found)


def _undeclared(name: str, what: str) -> CqlError:
    return fail(
        Code.BAD_DEFINITION,
        f"function '{name}': the type of {what} is not known",
        hint="annotate with bool, int, float, str or datetime, or pass arguments=[..] and returns='..'",
    )

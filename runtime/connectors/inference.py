"""SCHEMA INFERRED from files: the first file stands for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cql.binder.inference import column_type
from cql.catalog import ColumnModel
from cql.errors import Code, fail
from cql.source import Span
from runtime.connectors.file_connector import FileConnector
from runtime.connectors.file_options import FileOptions
from runtime.user_errors import placed


def file_columns(connector: FileConnector[Any], given: Mapping[str, str], place: Span) -> list[ColumnModel]:
    """Return the columns of a source of files; raises if they cannot be found out."""
    with placed(place):
        options = connector.options.of(given)
        path = _first_file(options)
        try:
            schema = connector.schema(path, options)
        except OSError as error:
            raise fail(Code.NO_FILE, f"'{options.path}' cannot be read: {error.strerror or error}") from None
        except (ValueError, TypeError, NotImplementedError) as error:
            message = f"no columns can be read from '{options.path}': {error}"
            raise fail(Code.CANNOT_INFER, message, hint=connector.inference_hint) from None
        if schema is None:
            raise connector.cannot_infer()
        _check_names(schema.names, options.path)
        return [ColumnModel(name=field.name, type=column_type(field.type, field.name)) for field in schema]


def _first_file(options: FileOptions) -> Path:
    files = options.place().files()
    if not files:
        raise fail(
            Code.NO_FILE,
            f"there is no file '{options.path}'",
            hint="paths are relative to the working directory; list the columns if the file comes later",
        )
    return files[0]


def _check_names(names: Sequence[str], path: str) -> None:
    if not names:
        raise fail(Code.CANNOT_INFER, f"'{path}' has no columns")
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen or not name:
            what = f"two columns '{name}'" if name else "a column without a name"
            raise fail(Code.CANNOT_INFER, f"'{path}' has {what}", hint="list the columns: name (column TYPE, ..)")
        seen.add(name.casefold())

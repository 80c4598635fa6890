"""Whatever only Spark reads: any name that no other connector has, with options that are passed on as they are."""

from __future__ import annotations

from runtime.connectors.connector import Connector

KNOWN = {
    "kafka": "topics, if Spark has the connector",
    "orc": "ORC files",
    "avro": "Avro files, if Spark has the connector",
    "text": "files with a `value` on each line",
    "xml": "XML files",
}
"""Names of formats of Spark that are known in any case, and what they are."""

_FILES = frozenset({"orc", "avro", "text", "xml"})
_LOGS = frozenset({"kafka"})
"""Formats that keep what they have given."""


class SparkConnector(Connector):
    """A format of Spark, or a data source that is registered with it."""

    takes_any_option = True
    is_only_on_spark = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_in_files = self.is_bounded = name in _FILES
        self.can_be_read_again = name in _FILES | _LOGS

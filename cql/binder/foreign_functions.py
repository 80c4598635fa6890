"""What functions of other systems are called in CQL, for people who try them here."""

from __future__ import annotations

_TUMBLING = "a window goes after the stream's name: [Range 10 Seconds Slide 10 Seconds]"
_NO_NOW = "a query has no clock to ask; to look at what is recent, use a window: FROM s [Range 10 Seconds]"
ELSEWHERE = {
    "row_number": "ROW_NUMBER needs OVER (PARTITION BY .. ORDER BY ..)",
    "tumble": _TUMBLING,
    "hop": _TUMBLING,
    "window": _TUMBLING,
    "session": "CQL has no session windows; it has [Range ..], [Rows ..] and [Partition By .. Rows ..]",
    "now": _NO_NOW,
    "current_timestamp": _NO_NOW,
    "average": "it is called AVG",
    "mean": "it is called AVG",
    "len": "it is called length",
    "ifnull": "it is called coalesce",
    "nvl": "it is called coalesce",
    "isnull": "write x IS NULL",
    "if": "write CASE WHEN condition THEN x ELSE y END",
    "to_timestamp": "write CAST(x AS TIMESTAMP)",
    "to_char": "it is called date_format",
}
"""What functions of other systems are in CQL."""

"""From text to syntax tree: `parse_script`, `parse_statement`, `parse_query`, `parse_expression`.

Knows the grammar and nothing about what names mean.
"""

from cql.parsing.parser import ParsedScript, parse_expression, parse_query, parse_script, parse_statement

__all__ = ["ParsedScript", "parse_expression", "parse_query", "parse_script", "parse_statement"]

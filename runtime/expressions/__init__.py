"""Expressions over columns: what the engine computes with, vectorised.

A bound expression is compiled once into a function from the columns of a batch to a column. It means what
`docs/language.md` says, to the bit: NULL where there is no value, one NaN, one zero. The law it relies on is that
expressions are total and look at one row only, so that they can be computed for all rows of a batch at once, and
the rare ones once per distinct value.
"""

from runtime.expressions.program import compile_expression, compile_predicate, compile_projection
from runtime.expressions.user import Functions

__all__ = ["Functions", "compile_expression", "compile_predicate", "compile_projection"]

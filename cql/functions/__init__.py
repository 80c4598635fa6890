"""The functions of CQL: built-in scalars and aggregates by signature, and those of the user.

This package says what functions exist, what they take and what type they give. What they compute is
the business of whoever evaluates expressions: the definitional evaluator, the engine, Spark.
"""

from cql.functions.aggregates import AGGREGATES, AggregateFunction
from cql.functions.scalars import SCALARS, BadArguments, ScalarFunction, Signature
from cql.functions.user import UserAggregate, UserFunction

__all__ = [
    "AGGREGATES",
    "SCALARS",
    "AggregateFunction",
    "BadArguments",
    "ScalarFunction",
    "Signature",
    "UserAggregate",
    "UserFunction",
]

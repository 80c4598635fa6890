"""The definitional evaluator: what a bound query means, in plain Python, straight from the definitions.

It judges the planner, the engine and the Spark runtime, so it imports from `cql` only, keeps everything,
recomputes everything, and prefers the sentence of the definition to the clever line.
"""

from tests.definition.evaluator import Element, Result, evaluate, user_code
from tests.definition.values import Row, Value, canonical

__all__ = ["Element", "Result", "Row", "Value", "canonical", "evaluate", "user_code"]

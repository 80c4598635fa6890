"""Benchmarks, each a module of this package; `python -m benchmarks` lists and runs them.

A benchmark is a module whose name does not start with `_`, whose docstring's first line says what it
measures, and which has a `main() -> None` that prints a table. Measuring is all it does: what must hold
belongs in the tests.
"""

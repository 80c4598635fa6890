"""Joins without the operators around them: the candidates of a probe, by one tactic or another, and those that match.

Imports `state`, `expressions` and what is below them, and from `shedding` how to choose what is left out.
"""

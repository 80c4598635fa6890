"""Joins without the operators around them: the candidates of a probe, by one tactic or another, and which of them match.

Imports `state`, `expressions` and what is below them.
"""

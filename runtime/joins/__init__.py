"""Joins without the operators around them: which rows a probe may match, and which of them it does.

Imports `state`, `expressions` and what is below them.
"""

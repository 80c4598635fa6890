"""Exact sums of numbers, whatever their order, by group.

Imports `columns`.
"""

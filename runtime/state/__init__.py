"""What operators keep: stores with lifetimes, sorted runs, tables of groups, indexes, all in chunks that are written as
they change.

Imports `columns`, `time` and `exact_sums`.
"""

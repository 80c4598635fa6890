"""Fragments: a plan cut into parts that run in many places, once for each bucket of keys.

Rows travel between parts packed, as a few large pieces with the names of where they go. Nothing here knows of
Spark, which only carries the pieces, keeps the state and calls the workers.
"""

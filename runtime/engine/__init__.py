"""The engine: runs the operators of a plan on batches, one chunk at a time, and saves and restores their state.

Imports `operators` and what is below them, and knows nothing of sources, sinks and hosts.
"""

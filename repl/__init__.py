"""The front ends: the command line now, the interactive shell later.

May import every other package; no other package imports this one.
"""

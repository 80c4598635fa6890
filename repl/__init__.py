"""The front ends: the command line and the interactive shell.

May import every other package; no other package imports this one.
"""

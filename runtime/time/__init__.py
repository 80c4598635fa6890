"""How time passes: the clock of sources, lifetimes that windows give, windows that did not end.

Imports `columns`.
"""

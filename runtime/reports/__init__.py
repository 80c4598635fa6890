"""What a run says of itself: progress, losses, warnings, plots.

Imports `engine` for its figures.
"""

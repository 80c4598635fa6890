"""What a kept state means, for those who look at it: listings and descriptions of chunks.

Imports `network` and what is below it.
"""

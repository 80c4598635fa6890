"""Columns and what is done with whole columns: change batches, codes of rows, order, texts.

Imports no other room.
"""

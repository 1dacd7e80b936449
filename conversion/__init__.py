"""Conversion of rows from one schema to another without a loss (rule D4).

Used wherever rows are written or read: by writers and readers, servers and push tables.
"""

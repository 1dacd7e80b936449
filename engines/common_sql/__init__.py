"""The part of SQL that Spark and DataFusion answer alike, for queries of a row.

A query is parsed here, checked with the types of its columns, and written again as SQL
of DataFusion that has the values of Spark (in its ANSI mode, which is the default).
What is not known to be equal is refused.
"""

"""Pipelines: a source stream, SQL steps on Spark, and sink streams."""

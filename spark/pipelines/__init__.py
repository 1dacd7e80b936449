"""Pipelines: from a stream, through SQL on Spark, into other streams."""

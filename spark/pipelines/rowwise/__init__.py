"""Pipelines without Spark: each row stands for itself, and DataFusion evaluates it."""

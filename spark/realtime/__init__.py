"""Pipelines in Spark's real-time mode: Spark's own Kafka connector at both ends."""

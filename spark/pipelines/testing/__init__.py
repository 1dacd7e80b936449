"""Tests of pipelines: rows in, and the rows expected of steps and sinks."""

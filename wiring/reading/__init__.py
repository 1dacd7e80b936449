"""Reads streams: from a consumer to checked batches; ranges, starts, partitions."""

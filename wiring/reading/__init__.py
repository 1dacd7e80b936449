"""From a consumer to checked batches: ranges, starts, several partitions."""

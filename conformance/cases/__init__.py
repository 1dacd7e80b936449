"""The cases, one module per topic: reading, metadata, life cycle, writing."""

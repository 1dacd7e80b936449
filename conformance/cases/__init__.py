"""The cases, a module a chapter: reading, metadata, life cycle, writing."""

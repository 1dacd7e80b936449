"""Open streams, groups of readers, checkpoints."""

"""What users hold: an open stream, a group of readers, checkpoints."""

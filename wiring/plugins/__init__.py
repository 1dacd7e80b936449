"""Finds, checks and loads plug-ins: stream types and decoders."""

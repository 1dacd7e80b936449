"""Columns of text to typed ones, and back: what the decoders of text formats share."""

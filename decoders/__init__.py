"""Decoders and encoders of message formats. Each module is one plug-in."""

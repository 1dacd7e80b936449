"""Bytes in, Arrow out, and the way back: one module a format, each a plug-in."""

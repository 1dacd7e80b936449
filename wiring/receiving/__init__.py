"""Receivers: they read a transport and write its spool."""

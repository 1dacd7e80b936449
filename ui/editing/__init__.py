"""Definitions that are changed in the pages: files, texts, forms and their checks."""

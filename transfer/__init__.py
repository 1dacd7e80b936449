"""Whole jobs: publish, copy, export, and dead letters sent through again."""

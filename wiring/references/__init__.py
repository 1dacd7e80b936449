"""Schemes of references, and how their values are looked up and kept."""

"""Searches for messages by a SQL expression; pages of messages of all partitions.

Used by ``streamfactory tail --where`` and by the pages in the browser.
"""

"""The spool: an Arrow log in front of a transport that cannot be read again.

`receiving` fills it, `reading` reads it by offset; `docs/spool.md` is the user's page.
"""

"""Complete plug-ins of each kind, small and correct: the kit is proved on them.

`durable` keeps a stream in one file, for reading and writing; `forgetful` cannot be
read again; `redelivering` keeps what is not acknowledged; `envelopes` answers undecoded
messages; `upper` decodes them. Each has its hook, its classes and its harness, and
stands on ``spi`` alone.
"""

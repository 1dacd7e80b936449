"""The common base of live transports: rows arrive once, and nothing is stored.

`socket` and `zeromq` are built on it. A partition is an address. A backend implements a
`reading.PartitionReader` and a `writing.PartitionWriter`, which hold the connections of
one address, and a factory for each direction that creates them. Consumers, metadata,
waits for a schema, writers, committers, ends, and the rule that a process uses no
inherited connection are here; so are ranges of addresses (`addresses`), options and
rules that all of them have (`options`, `rules`), and limits on the Arrow messages of a
peer (`messages`).
"""

"""The wire protocol, shared by server and client: see `docs/flight-protocol.md`."""

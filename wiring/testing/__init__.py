"""Injected faults, for the tests of users and the conformance kit."""

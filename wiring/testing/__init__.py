"""Faults on purpose, for the tests of users and the conformance kit."""

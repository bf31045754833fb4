"""The fault harness: a server under load, faults at random times from a seed, and invariants afterwards."""

"""Benchmarks: each measures Shopfloor and a limit or a peer in the same run, and returns their ratio."""

"""Benchmarks: each measures us beside the limit or a peer, in the same run, and gives a ratio."""

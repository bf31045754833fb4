"""The fault harness: a server under load, faults at times that a seed decides, and what has to hold afterwards."""

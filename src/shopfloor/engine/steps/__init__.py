"""What a step can do: each kind, on top of an attempt."""

"""Workers as they are defined: found, read, checked."""

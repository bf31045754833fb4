"""A worker plugin: an HTTP server that runs Agent SDK sessions as jobs."""

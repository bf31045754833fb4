"""Shopfloor runs AI workers and keeps the record."""

__version__ = "0.1.0"

__all__ = ["__version__"]

"""The fleet: whether providers can be used."""

from shopfloor.fleet.providers import ProviderMonitor, ProviderState, decide_status, settle

__all__ = ["ProviderMonitor", "ProviderState", "decide_status", "settle"]

"""What fits the ports: one folder per kind of world. No adapter knows another."""

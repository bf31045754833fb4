"""Lets the tests import the plugin, whatever folder pytest is started in."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

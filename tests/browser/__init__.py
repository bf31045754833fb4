"""Tests of the page in a real browser, against the installed `shopfloor up`.

A package, and not only a folder, so that its package-scoped fixtures end with the last of these tests. Playwright keeps an
event loop in its thread while it is open, and tests of other folders run event loops of their own.
"""

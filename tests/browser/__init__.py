"""The page in a real browser, before the installed `shopfloor up`.

A package, and not only a folder: fixtures of its scope end when the last of these tests does. Playwright keeps an event
loop in its thread for as long as it is there, and tests of other rooms want to run loops of their own.
"""

"""Decoders that several threads build at the same time."""

from __future__ import annotations

import subprocess
import sys

RACE = """
import sys, threading, types
import msgspec
from shopfloor.decoding import convert, decode_json, json_decoder

SOURCE = '''
import msgspec
class Inner(msgspec.Struct, array_like=True):
    a: str
    b: int
class Outer(msgspec.Struct):
    inner: "Inner"
    many: "dict[str, Inner]" = {}
'''
RAW = b'{"inner":["x",1],"many":{"y":["x",2]}}'
sys.setswitchinterval(1e-6)
for number in range(400):
    # Structs that nobody has decoded yet.
    module = types.ModuleType(f"fresh{number}")
    sys.modules[module.__name__] = module
    exec(SOURCE, module.__dict__)
    module.Inner.__module__ = module.Outer.__module__ = module.__name__
    made = []
    uses = [
        lambda: json_decoder(module.Outer).decode(RAW).inner.b,
        lambda: json_decoder(module.Inner).decode(b'["x",1]').b,
        lambda: decode_json(RAW, module.Outer).inner.b,
        lambda: convert(["x", 1], module.Inner).b,
    ]
    threads = [threading.Thread(target=lambda use=use: made.append(use())) for use in uses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1, 1, 1, 1], made
print("all decoded")
"""


def test_threads_that_decode_a_type_for_the_first_time_do_not_crash_the_process():
    # In a separate process: without the lock it ends with a segmentation fault.
    ended = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "all decoded\n"), ended.stderr

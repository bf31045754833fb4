"""Regenerate the golden transcripts: `python -m tests.providers.regenerate [PROVIDER…]`. Review the diff afterwards."""

from __future__ import annotations

import json
import sys

from tests.providers.streams import as_read, streams


def main() -> None:
    for name in sys.argv[1:] or [None]:
        for stream in streams(name):
            stream.golden.parent.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(as_read(line), ensure_ascii=False) for line in stream.transcript()]
            stream.golden.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

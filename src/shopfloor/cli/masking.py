"""`--mask-env` and `--mask-keys`: what is kept out of the record of a run."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from shopfloor.errors import UsageError
from shopfloor.log import Masking


def add_masking(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("what is kept out of the record")
    group.add_argument(
        "--mask-env",
        metavar="NAME",
        action="append",
        default=[],
        help="mask the value of this variable; may be repeated",
    )
    group.add_argument("--mask-keys", action="store_true", help="mask what looks like a known kind of key")


def masking_of(args: Namespace) -> Masking | None:
    """What is to be masked; None where nobody asked for that."""
    values: list[str] = []
    name: str
    for name in args.mask_env:
        if name not in os.environ:
            raise UsageError(f"there is no variable {name} to mask", hint="set it, or leave --mask-env out")
        values.append(os.environ[name])
    return Masking(values, key_shapes=args.mask_keys) if values or args.mask_keys else None

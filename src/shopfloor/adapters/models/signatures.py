"""What a provider wants back with a thought, in the one string that a thinking block has for it.

Anthropic's signatures stand as they are, as in any transcript of Claude. Those of others are
`<provider>:<the thought's id>:<signature>`, since a thread may go on with another provider, which rejects them.
"""

from __future__ import annotations

import msgspec


class Signature(msgspec.Struct, frozen=True):
    id: str | None
    signature: str | None


def pack_signature(provider: str, signature: Signature) -> str | None:
    if not signature.id and not signature.signature:
        return None
    if provider == "anthropic" and not signature.id:
        return signature.signature
    return f"{provider}:{signature.id or ''}:{signature.signature or ''}"


def unpack_signature(provider: str, packed: str | None) -> Signature | None:
    """None where that provider did not sign it."""
    if not packed:
        return None
    owner, colon, rest = packed.partition(":")
    if not colon:
        return Signature(None, packed) if provider == "anthropic" else None
    if owner != provider:
        return None
    thought, _, signature = rest.partition(":")
    return Signature(thought or None, signature or None)

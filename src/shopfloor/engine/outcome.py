"""Why a run failed, as its outcome tells it."""

from __future__ import annotations

import msgspec

from shopfloor.errors import RunFailed, ShopfloorError, StorageError
from shopfloor.log import RunError


def error_of(failure: ShopfloorError) -> RunError:
    retryable = failure.retryable if isinstance(failure, RunFailed) else isinstance(failure, StorageError)
    after = failure.retry_after if isinstance(failure, RunFailed) else None
    return RunError(
        code=failure.code,
        message=failure.message,
        retryable=retryable,
        retry_after=msgspec.UNSET if after is None else after,
        hint=failure.hint or msgspec.UNSET,
    )

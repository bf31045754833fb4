"""All errors that Shopfloor reports, as one tree of classes; docs/reference/errors.md shows the tree.

Each class has a stable `code`, an HTTP `status`, an `exit_code` and `needs_person`, which subclasses inherit. Each
error has a message that says what failed and, if the user can do something about it, a `hint`. They are printed after
`error[code]:` and `hint:`, so they start in lower case and have no final period.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast


class ShopfloorError(Exception):
    """The base of all errors that Shopfloor reports."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    needs_person: ClassVar[bool] = False
    """Whether only a person can remove the cause: a run that failed with it fails again until one has acted."""

    def __init_subclass__(
        cls,
        *,
        code: str | None = None,
        status: int | None = None,
        exit_code: int | None = None,
        needs_person: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.code = code or cls.code
        cls.status = status or cls.status
        cls.exit_code = exit_code or cls.exit_code
        cls.needs_person = needs_person or cls.needs_person

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.run_id: str | None = None
        """The run that the error is about. Set by the SDK."""


class MethodNotAllowed(ShopfloorError, code="method_not_allowed", status=405):
    """The address does not accept this HTTP method."""


class BodyTooLarge(ShopfloorError, code="body_too_large", status=413):
    """The body of the request is larger than the limit."""


class RequestRefused(ShopfloorError, code="request_refused", status=400):
    """The request breaks a limit of the connection."""


class MalformedRequest(RequestRefused, code="malformed_request"):
    """The bytes of the request are not valid HTTP."""


class AddressTooLong(RequestRefused, code="address_too_long", status=414):
    """The request line is longer than the limit."""


class HeadersTooLarge(RequestRefused, code="headers_too_large", status=431):
    """The request has too many or too large headers."""


class RequestTimeout(RequestRefused, code="request_timeout", status=408):
    """The client did not send the request in time."""


class TooManyConnections(RequestRefused, code="too_many_connections", status=503):
    """No connection is free, in total or for this address."""


class TooManySubscriptions(ShopfloorError, code="too_many_subscriptions", status=429):
    """A client or the server has too many subscriptions, or a client sends too many messages."""


class TooManyLogins(ShopfloorError, code="too_many_logins", status=429, exit_code=3):
    """Too many logins failed from one address."""

    def __init__(self, message: str, *, hint: str | None = None, retry_after_seconds: int = 1) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class ExtraMissing(ShopfloorError, code="extra_not_installed", status=501, needs_person=True):
    """Shopfloor was installed without the extra that this needs."""


class ResourceLimit(ShopfloorError, code="resource_limit", exit_code=8):
    """A limit of this process is too small for a server."""


class InputError(ShopfloorError, code="invalid_input", status=400, exit_code=2):
    """The request or command line cannot be executed as it is."""


class UsageError(InputError, code="usage"):
    """The arguments of a command are wrong."""


class InvalidEvent(InputError, code="invalid_event"):
    """The event breaks the transcript format."""


class InvalidRunId(InputError, code="invalid_run_id"):
    """The run id is not a UUID v4."""


class InvalidParameter(InputError, code="invalid_parameter"):
    """A parameter of the request has an invalid value."""


class AmbiguousRun(InputError, code="ambiguous_run", status=409):
    """The first characters match more than one run."""


class ConfigInvalid(InputError, code="config_invalid"):
    """The configuration file of another program cannot be edited."""


class InvalidName(InputError, code="invalid_name"):
    """The text cannot be the name of an artifact or the key of a memory."""


class InvalidSecret(InputError, code="invalid_secret"):
    """The value cannot be masked."""


class InvalidInput(InputError, code="validation_error"):
    """The input does not match the worker's input schema."""


class InvalidWorker(InputError, code="invalid_worker", status=422):
    """The definition of the worker has errors."""


class UnknownModel(InputError, code="unknown_model"):
    """No provider has a model of this name."""

    problems: tuple[tuple[str, int, str], ...] = ()
    """The errors in the script of a scripted model: file, line and reason of each."""


class UnsupportedOption(InputError, code="unsupported_option"):
    """The provider or the server does not support this option."""


class MultipleRuns(InputError, code="several_runs"):
    """The output has several runs where only one fits."""


class UnknownCall(InputError, code="unknown_call", status=409):
    """The run did not make the call that this result is for."""


class NotFoundError(ShopfloorError, code="not_found", status=404, exit_code=4):
    """The thing that was named does not exist."""


class ProviderNotFound(NotFoundError, code="provider_not_found"):
    """No provider has this name."""


class PluginNotFound(NotFoundError, code="plugin_not_found"):
    """No plugin has this name."""


class RunNotFound(NotFoundError, code="run_not_found"):
    """No run has this id."""


class WorkerNotFound(NotFoundError, code="not_found_error"):
    """No worker has this name."""


class ProjectNotFound(NotFoundError, code="project_not_found"):
    """No project has this name."""


class HostNotFound(NotFoundError, code="host_not_found"):
    """No host has this id."""


class ArtifactNotFound(NotFoundError, code="artifact_not_found"):
    """The run has no artifact with this name, or a plugin has the file."""


class FileMissing(NotFoundError, code="file_not_found"):
    """The file or folder does not exist."""


class ConflictError(ShopfloorError, code="conflict", status=409, exit_code=5):
    """The request does not fit the current state."""


class AmbiguousWorker(ConflictError, code="ambiguous_worker"):
    """Several projects have a worker of this name."""


class ProviderDisabled(ConflictError, code="provider_disabled", needs_person=True):
    """A person has disabled the provider, so that nothing new may use it."""


class LogBusy(ConflictError, code="log_busy"):
    """Another process is writing this log."""


class LogExists(ConflictError, code="log_exists"):
    """The log of the new run exists already."""


class LogClosed(ConflictError, code="log_closed"):
    """The writer of the log was closed."""


class RunRunning(ConflictError, code="run_running"):
    """The run must have ended for this."""


class NeedsForce(ConflictError, code="needs_force"):
    """The action must be confirmed with `--force`."""


class ServerRunning(ConflictError, code="server_running"):
    """Another server is running on this storage."""


class RunEnded(ConflictError, code="run_ended"):
    """The run has its outcome, and nothing follows an outcome."""


class StorageError(ShopfloorError, code="storage_error", exit_code=6):
    """The record cannot be written or read."""


class StorageFull(StorageError, code="storage_full", status=507):
    """The disk is full, or nearly full."""


class StorageUnwritable(StorageError, code="storage_unwritable"):
    """The permission to write is missing."""


class StorageUnreadable(StorageError, code="storage_unreadable"):
    """The permission to read is missing."""


class StorageUnsafe(StorageError, code="storage_unsafe"):
    """Other users can write to the storage folder."""


class StorageLost(StorageError, code="storage_lost", status=503):
    """The storage folder was deleted or replaced."""


class StorageFailed(StorageError, code="storage_failed"):
    """The disk failed in another way."""


class AccessError(ShopfloorError, code="access_denied", status=403, exit_code=3):
    """The caller may not do this."""


class Unauthorized(AccessError, code="unauthorized", status=401):
    """The token is missing or wrong."""


class Forbidden(AccessError, code="forbidden"):
    """The role or the origin of the caller does not allow this."""


class ServerUnreachable(ShopfloorError, code="server_unreachable", status=502, exit_code=7):
    """The server does not answer."""


class StoreError(ShopfloorError, code="store_error", exit_code=6):
    """The database cannot be used."""


class DatabaseTooNew(StoreError, code="database_too_new"):
    """A newer version of Shopfloor created the database."""


class DatabaseTooOld(StoreError, code="database_too_old"):
    """The database is older than the first released version; `shopfloor rebuild` recreates it."""


class DatabaseDamaged(StoreError, code="database_damaged", status=503):
    """The file is not an intact database."""


class DatabaseLost(StoreError, code="database_lost", status=503):
    """The database file was deleted or replaced."""


class DatabaseBusy(StoreError, code="database_busy", status=503):
    """Another process locked the database for too long."""


class RunFailed(ShopfloorError, code="run_failed", status=502):
    """The run did not complete; its outcome has the reason."""

    retryable: ClassVar[bool] = False
    """Whether a second attempt may succeed."""
    default_hint: ClassVar[str | None] = None
    """The hint of errors that are raised without one."""

    def __init_subclass__(
        cls, *, retryable: bool | None = None, default_hint: str | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if retryable is not None:
            cls.retryable = retryable
        cls.default_hint = default_hint or cls.default_hint

    def __init__(self, message: str, *, hint: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint or self.default_hint)
        self.retry_after = retry_after
        """Seconds to wait before a second attempt, if the provider named them."""


class ProviderError(RunFailed, code="provider_error", retryable=True):
    """The agent or model API failed."""


class RateLimited(ProviderError, code="rate_limit_error", status=429):
    """The provider received too many requests."""


class ProviderOverloaded(ProviderError, code="provider_overloaded", status=503):
    """The provider is overloaded."""


class ProviderTimeout(ProviderError, code="provider_timeout", status=504):
    """The provider did not answer in time."""


class ProviderUnreachable(ProviderError, code="provider_unreachable"):
    """The provider cannot be reached."""


class AuthenticationFailed(
    ProviderError,
    code="authentication_error",
    retryable=False,
    needs_person=True,
    default_hint="check the key or the login; `shopfloor doctor` shows how each agent logs in",
):
    """The provider rejected the key or the login."""


class RequestRejected(ProviderError, code="invalid_request_error", retryable=False):
    """The provider rejected the request."""


class ToolFailed(RunFailed, code="tool_error"):
    """A tool failed."""


class StepFailed(RunFailed, code="execution_error"):
    """A step failed."""


class PluginFailed(RunFailed, code="plugin_error"):
    """A plugin answered with an error, or not as the protocol says."""

    def __init__(self, message: str, *, rpc_code: int | None = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.rpc_code = rpc_code
        """The code of a JSON-RPC error."""


class PluginUnavailable(RunFailed, code="plugin_unavailable", status=503, retryable=True):
    """A plugin does not run or does not answer."""

    def __init__(self, message: str, *, is_sent: bool = False, **details: Any) -> None:
        super().__init__(message, **details)
        self.is_sent = is_sent
        """Whether the plugin may have received the request."""


class AgentFailed(RunFailed, code="agent_error"):
    """An agent did not complete its task."""


class AgentMissing(RunFailed, code="agent_not_installed", exit_code=127, needs_person=True):
    """The program of the agent is not installed."""


class BudgetExceeded(
    RunFailed,
    code="budget_exceeded",
    needs_person=True,
    default_hint="raise --max-budget, and continue the agent session with --resume RUN",
):
    """The run spent its whole budget."""


class TurnsExceeded(
    RunFailed,
    code="max_turns_exceeded",
    needs_person=True,
    default_hint="raise --max-turns, and continue the agent session with --resume RUN",
):
    """The run used all its turns."""


class OutcomeUnknown(RunFailed, code="outcome_unknown", needs_person=True):
    """A crash interrupted a step that must not be executed twice."""


class TreeLimit(RunFailed, code="tree_limit"):
    """The tree of sub-runs is too large or too deep."""


class Poisoned(RunFailed, code="poisoned", needs_person=True):
    """The code of the run blocked the event loop of several hosts in a row."""


class DefinitionChanged(RunFailed, code="definition_changed", status=409, needs_person=True):
    """The worker changed, or its Python code requests other steps than the log has."""


class ApprovalDenied(RunFailed, code="approval_denied"):
    """A person denied a command or a tool call of a worker, or did not answer in time."""


class AnswerTimeout(RunFailed, code="answer_timeout"):
    """No answer came in time."""


class StepTimeout(
    RunFailed,
    code="step_timeout",
    status=504,
    exit_code=124,
    retryable=True,
    default_hint="raise the `timeout` of the step, or --timeout",
):
    """A step took longer than its time limit."""


class HostStopped(RunFailed, code="host_stopped", retryable=True):
    """The host was stopped during a step."""


class ExecutionCancelled(RunFailed, code="cancelled", status=409):
    """The run was cancelled."""


class TranscriptBroken(ShopfloorError, code="transcript_broken", status=422):
    """The file breaks a rule of the transcript format."""


class ProcessError(ShopfloorError, code="process_error"):
    """A process cannot be started or ended."""


class CommandNotFound(ProcessError, code="command_not_found", status=400, exit_code=127):
    """The program does not exist."""


# `minder_lost` is an older name of the reaper. The code is part of the API and stays.
class ReaperLost(ProcessError, code="minder_lost"):
    """The reaper, which kills orphaned children, cannot be started."""


class UnexpectedError(ShopfloorError, code="unexpected", exit_code=70):
    """A defect of Shopfloor."""


def sole_error(error: BaseException) -> BaseException:
    """Return the only error inside nested exception groups, or the outermost group if it has several errors."""
    inside = error
    while isinstance(inside, BaseExceptionGroup):
        first, *others = cast("BaseExceptionGroup[BaseException]", inside).exceptions
        if others:
            return error
        inside = first
    return inside


def all_error_types() -> list[type[ShopfloorError]]:
    """Return all classes of the tree, parents before children, in the order of this module."""
    found: list[type[ShopfloorError]] = []
    stack: list[type[ShopfloorError]] = [ShopfloorError]
    while stack:
        cls = stack.pop()
        found.append(cls)
        stack.extend(reversed(cls.__subclasses__()))
    return found


def error_class(code: str) -> type[ShopfloorError]:
    """Return the class with this code; `ShopfloorError` for an unknown code, such as one that a worker made up."""
    return next((error for error in all_error_types() if error.code == code), ShopfloorError)

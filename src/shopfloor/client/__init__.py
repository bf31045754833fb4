"""The SDK: a client of a server, whose address comes from `$SHOPFLOOR_URL` or from the storage folder."""

from typing import TYPE_CHECKING

from shopfloor.client.address import (
    Address,
    find_server,
    find_storage_server,
    parse_server_url,
    server_from_environment,
)
from shopfloor.client.api import Api, failure_of
from shopfloor.client.approvals import ApprovalRule, ApprovalsApi
from shopfloor.client.client import Client
from shopfloor.client.fleet import GAP, FleetUpdate, follow_events, newest_events
from shopfloor.client.hooks import AddedHook, Hook, HooksApi, HookTest
from shopfloor.client.runs import LaterRun, PendingCall, Run, RunFailure, RunList, RunsApi
from shopfloor.client.sse import to_sse
from shopfloor.client.tools import CallResult, Handler, ToolHandlers, executed
from shopfloor.client.transport import App, AppTransport, Response, Transport, TransportError
from shopfloor.client.workers import Signal, WorkersApi
from shopfloor.lazy import lazy_getattr as _lazy_getattr
from shopfloor.log import ClientInfo
from shopfloor.views import (
    BlockEnd,
    BlockStart,
    ClientToolRequest,
    ErrorEvent,
    Finish,
    Notice,
    Question,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    RequestedCall,
    Start,
    Stats,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputStart,
    ToolOutputAvailable,
    ToolOutputError,
    ToolRequest,
    UnknownEvent,
    UsageEvent,
    WorkerResult,
    WorkerStart,
)

if TYPE_CHECKING:
    from shopfloor.client.http_transport import HttpTransport
    from shopfloor.client.plain_transport import PlainTransport

__all__ = [
    "GAP",
    "AddedHook",
    "Address",
    "Api",
    "App",
    "AppTransport",
    "ApprovalRule",
    "ApprovalsApi",
    "BlockEnd",
    "BlockStart",
    "CallResult",
    "Client",
    "ClientInfo",
    "ClientToolRequest",
    "ErrorEvent",
    "Finish",
    "FleetUpdate",
    "Handler",
    "Hook",
    "HookTest",
    "HooksApi",
    "HttpTransport",
    "LaterRun",
    "Notice",
    "PendingCall",
    "PlainTransport",
    "Question",
    "ReasoningDelta",
    "ReasoningEnd",
    "ReasoningStart",
    "RequestedCall",
    "Response",
    "Run",
    "RunFailure",
    "RunList",
    "RunsApi",
    "Signal",
    "Start",
    "Stats",
    "StreamEvent",
    "TextDelta",
    "TextEnd",
    "TextStart",
    "ToolHandlers",
    "ToolInputAvailable",
    "ToolInputDelta",
    "ToolInputStart",
    "ToolOutputAvailable",
    "ToolOutputError",
    "ToolRequest",
    "Transport",
    "TransportError",
    "UnknownEvent",
    "UsageEvent",
    "WorkerResult",
    "WorkerStart",
    "WorkersApi",
    "executed",
    "failure_of",
    "find_server",
    "find_storage_server",
    "follow_events",
    "newest_events",
    "parse_server_url",
    "server_from_environment",
    "to_sse",
]

# Loaded on first use: httpx loads slowly, and the other transport is for `shopfloor mcp` alone.
__getattr__ = _lazy_getattr(__name__, {"http_transport": ("HttpTransport",), "plain_transport": ("PlainTransport",)})

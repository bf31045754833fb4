"""Operations on the rules of approvals: calls that workers may make without asking."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from shopfloor.ports import ApprovalRule
from shopfloor.server.audit import audit
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import ApprovalParams, NoParams
from shopfloor.server.response_models import ApprovalList
from shopfloor.server.responses import describe_json, get_services, json_response, require_run_service

operations = Operations()


@operations("GET", "/api/approvals", describe_json(ApprovalList, "The rules, newest first."))
async def list_approvals(request: Request, _: NoParams) -> Response:
    """List the calls that workers may make without asking, because a person approved them for always."""
    run_service = get_services(request).run_service
    return json_response(ApprovalList(await run_service.approval_rules() if run_service is not None else []))


@operations(
    "DELETE", "/api/approvals/{rule_id}", describe_json(ApprovalRule, "The rule that was deleted."), ApprovalParams
)
async def revoke_approval(request: Request, params: ApprovalParams) -> Response:
    """Revoke a rule: the worker asks again before such a call. The beginning of the id is enough."""
    rule = await require_run_service(request).revoke_approval(params.rule_id)
    await audit(request, "approval.revoked", run_id=rule.run_id, detail=f"{rule.worker} {rule.pattern}")
    return json_response(rule)

"""The rollout service's HTTP API as an OpenAPI 3.1 document; the service hands it out as /v1/openapi.json."""

from __future__ import annotations

from typing import Any

from sandbox.store import STATES

VERSION = "1.0.0"


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _number(text: str, minimum: float | None = None, default: Any = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "number", "description": text}
    return (
        schema
        | ({} if minimum is None else {"minimum": minimum})
        | ({} if default is None else {"default": default})
    )


def _integer(text: str, minimum: int | None = None, default: Any = None) -> dict[str, Any]:
    return _number(text, minimum, default) | {"type": "integer"}


def _string(text: str) -> dict[str, Any]:
    return {"type": "string", "description": text}


_GROUP = _object(
    ("group_id", "task", "attempts"),
    group_id=_string("Chosen by the caller; a group that is known already is left as it is."),
    task=_string("Path of the task's folder, as the service sees it."),
    attempts=_integer("Rollouts of the group; their ids are group_id/0, group_id/1, ...", 1),
    seed=_integer("The rollouts' own seeds derive from it.", default=0),
    temperature=_number("Of sampling.", 0, 1.0),
    min_version=_integer(
        "The oldest policy version that may sample it: nothing starts before the engine serves it, and what "
        "an older version sampled is cancelled when it would be leased. -1: any.",
        -1,
        -1,
    ),
)
_ROLLOUT = _object(
    ("rollout_id", "state", "reason", "claims", "oldest_version"),
    rollout_id=_string(""),
    state={"type": "string", "enum": list(STATES)},
    reason=_string("Why it was cancelled, or why no episode was possible."),
    claims=_integer("How often a service has begun to play it."),
    oldest_version={
        "type": ["integer", "null"],
        "description": "The oldest policy version that sampled it.",
    },
)
_STATUS = _object(
    ("version", "states", "in_flight", "concurrency", "endings"),
    version=_string("Of this API."),
    states=_object(STATES, **{state: _integer("", 0) for state in STATES}),
    in_flight=_integer("Episodes that this service plays now."),
    concurrency=_integer("How many it plays at most."),
    max_pending=_integer("Rollouts that may be pending."),
    max_ready=_integer("Ended rollouts that may wait for the learner before no further ones start."),
    endings={"type": "object", "additionalProperties": {"type": "integer"}},
    episodes_per_second=_number("Over the last minute, as are the next ones."),
    turns_per_second=_number(""),
    sampled_tokens_per_second=_number(""),
    mean_turns=_number("Of an episode."),
    uptime_seconds=_number(""),
)
_IDS = _list({"type": "string"})
_ACCEPTED = _object(
    ("accepted", "known"),
    accepted=_integer("New rollouts."),
    known=_integer("Rollouts that were queued before."),
)
_CANCELLED = _object(("cancelled", "rollout_ids"), cancelled=_integer("How many."), rollout_ids=_IDS)
_HEALTH = _object(("status",), status=_string("ok"))


def _answer(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


_ERROR = _object(("error",), error=_string("What, where and what was expected, in one line."))
_BAD = {"400": _answer("The request is wrong.", _ERROR)}


def _post(summary: str, body: dict[str, Any], answers: dict[str, Any], text: str = "") -> dict[str, Any]:
    content = {"required": True, "content": {"application/json": {"schema": body}}}
    return {
        "post": {"summary": summary, "description": text, "requestBody": content, "responses": answers | _BAD}
    }


def _get(summary: str, answers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": answers, **more}}


def document() -> dict[str, Any]:
    """The document. Every route of the service is in it."""
    frames = {
        "description": "For each trajectory 8 bytes (its length, little-endian) and the encoded trajectory "
        "(sandbox/trajectory.py). A rollout has one for each of its segments, which always come together. "
        "Empty when nothing has ended in time.",
        "headers": {"X-Rollouts": {"description": "How many rollouts.", "schema": {"type": "integer"}}},
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
    paths = {
        "/v1/groups": _post(
            "Queue groups of rollouts",
            _object(("groups",), groups=_list(_GROUP)),
            {
                "200": _answer(
                    "Queued.",
                    _object(
                        ("accepted", "known"),
                        accepted=_integer("New rollouts."),
                        known=_integer("Rollouts that were queued before."),
                    ),
                ),
                "429": _answer(
                    "Too many are pending, none was queued: try again after Retry-After seconds.",
                    _ERROR,
                ),
            },
            "May be sent again after a lost answer.",
        ),
        "/v1/groups/{group_id}": _get(
            "A group's rollouts and their states",
            {
                "200": _answer(
                    "`complete` when every rollout has ended.",
                    _object(
                        ("group_id", "complete", "rollouts"),
                        group_id=_string(""),
                        complete={"type": "boolean"},
                        rollouts=_list(_ROLLOUT),
                    ),
                ),
                "404": _answer("No such group.", _ERROR),
            },
            parameters=[{"name": "group_id", "in": "path", "required": True, "schema": {"type": "string"}}],
        ),
        "/v1/lease": _post(
            "Take ended rollouts",
            _object(
                max=_integer("How many at most.", 1, 64),
                wait_seconds=_number("How long to wait for the first.", 0, 0),
                min_version=_integer("What an older policy version sampled is cancelled instead.", -1, -1),
            ),
            {"200": frames},
            "Without an acknowledgement within the service's lease_seconds they are handed out again.",
        ),
        "/v1/ack": _post(
            "Say that rollouts are safely stored",
            _object(("rollout_ids",), rollout_ids=_IDS),
            {"200": _answer("How many ended by this call.", _object(("acked",), acked=_integer("")))},
            "May be sent again.",
        ),
        "/v1/cancel": _post(
            "End what has not ended in groups",
            _object(("group_ids",), group_ids=_IDS, reason=_string("Kept with each rollout.")),
            {
                "200": _answer(
                    "Cancelled.",
                    _object(("cancelled", "rollout_ids"), cancelled=_integer(""), rollout_ids=_IDS),
                ),
            },
        ),
        "/v1/status": _get("Counts and rates", {"200": _answer("", _STATUS)}),
        "/v1/openapi.json": _get("This document", {"200": _answer("", {"type": "object"})}),
        "/health": _get("Whether the service answers", {"200": _answer("", _HEALTH)}),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "t1-jax rollout service",
            "version": VERSION,
            "description": "Plays terminal tasks against an inference engine and hands out trajectories.",
        },
        "paths": paths,
    }

"""The client of any server that speaks OpenAI's chat completions: messages in, a message out, no token
record.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import aiohttp

from sandbox.engine_client import post_json
from sandbox.errors import InputError
from sandbox.policy import PolicyError

API_KEY = "OPENAI_API_KEY"
"""The environment variable whose value, where set, is sent as the bearer token."""


@dataclass(frozen=True, kw_only=True)
class ChatAnswer:
    """One assistant message as the server wrote it; token counts are 0 where the server gives none."""

    content: str
    tool_calls: tuple[dict[str, Any], ...]
    finish_reason: str  # "stop" | "length" | "tool_calls" | ...
    prompt_tokens: int
    completion_tokens: int


class ChatClient:
    """One model behind an OpenAI-compatible URL, with or without its /v1. `async with` opens and closes it.

    `model` None takes the first that /v1/models lists. `patience`: see `post_json`.
    """

    def __init__(
        self, url: str, *, model: str | None = None, patience: float = 300.0, request_timeout: float = 600.0
    ) -> None:
        url = url.rstrip("/")
        self.url = url if url.endswith("/v1") else f"{url}/v1"
        self.model = model
        self._patience = patience
        self._timeout = aiohttp.ClientTimeout(total=request_timeout, sock_connect=10)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ChatClient:
        """Raises InputError when no such server answers."""
        key = os.environ.get(API_KEY)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=self._timeout,
            headers={"Authorization": f"Bearer {key}"} if key else None,
        )
        if self.model is None:
            try:
                self.model = await self._first_model(self._session)
            except InputError:
                await self._session.close()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def _first_model(self, session: aiohttp.ClientSession) -> str:
        try:
            async with session.get(f"{self.url}/models") as response:
                response.raise_for_status()
                return str((await response.json())["data"][0]["id"])
        except (aiohttp.ClientError, ValueError, LookupError, TypeError, TimeoutError) as error:
            raise InputError(
                f"engine {self.url}: no model from /models ({type(error).__name__} {error}), expected a "
                "running OpenAI-compatible server"
            ) from error

    async def complete(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        max_tokens: int,
        temperature: float,
        seed: int,
    ) -> ChatAnswer:
        """Ask for the next message. Raises PolicyError, and ContextLengthError when it can't be had."""
        assert self._session is not None
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
        }
        if tools:
            body["tools"] = tools
        answer = await post_json(self._session, f"{self.url}/chat/completions", body, patience=self._patience)
        try:
            choice, usage = answer["choices"][0], answer.get("usage") or {}
            message = choice["message"]
            return ChatAnswer(
                content=str(message.get("content") or ""),
                tool_calls=tuple(message.get("tool_calls") or ()),
                finish_reason=str(choice.get("finish_reason") or "stop"),
                prompt_tokens=int(usage.get("prompt_tokens") or 0),
                completion_tokens=int(usage.get("completion_tokens") or 0),
            )
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise PolicyError(
                f"engine {self.url}: an answer without choices[0].message ({error!r})"
            ) from error

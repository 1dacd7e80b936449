"""A proxy before fake-gcs-server, which takes no uploads of Google's XML interface.

Our client uploads by `PUT`, and names the condition in a header. The server knows the
same condition for uploads in parts of its JSON interface: the proxy changes the form of
a request, and the server decides.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from tests.objects.proxy import Fault, FaultyProxy, Handler

if TYPE_CHECKING:
    from collections.abc import Callable

CONDITION: Final = "x-goog-if-generation-match"


class GoogleProxy(FaultyProxy):
    """Forwards requests to the server of `clouds.google` on ``port``."""

    def __init__(
        self, port: int, plan: Callable[[str, str], Fault | None] = lambda *_: None
    ) -> None:
        super().__init__(port, plan, _Uploading)


class _Uploading(Handler):
    def forward(self, body: bytes, fault: Fault | None) -> None:
        # The server finds buckets in paths only below the host that it was given.
        del self.headers["Host"]
        if self.command == "PUT":
            body = self._as_parts(body)
        super().forward(body, fault)

    def _as_parts(self, body: bytes) -> bytes:
        """Turn the request into an upload in parts."""
        bucket, _, name = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        boundary = uuid.uuid4().hex
        head = "\r\n".join(
            [
                f"--{boundary}",
                "Content-Type: application/json",
                "",
                json.dumps({"name": name}),
                f"--{boundary}",
                "Content-Type: application/octet-stream",
                "",
                "",
            ]
        )
        body = b"".join([head.encode(), body, f"\r\n--{boundary}--\r\n".encode()])
        self.command = "POST"
        self.path = f"/upload/storage/v1/b/{quote(bucket)}/o?uploadType=multipart"
        if (generation := self.headers[CONDITION]) is not None:
            self.path += f"&ifGenerationMatch={generation}"
        for key, value in {
            "Content-Type": f"multipart/related; boundary={boundary}",
            "Content-Length": str(len(body)),
        }.items():
            del self.headers[key]
            self.headers[key] = value
        return body

    def answer(
        self, status: int, head: list[tuple[str, str]], data: bytes, *, torn: bool
    ) -> None:
        if self.command == "POST" and data and status == 200:
            # Answers of the XML interface have the tag in a header.
            head = [("ETag", json.loads(data)["etag"])]
            data = b""
        super().answer(status, head, data, torn=torn)

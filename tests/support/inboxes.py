"""Servers that take messages, and keep them: a webhook over HTTP, and a mail server that speaks SMTP."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Inbox(list[str]):
    """Messages that came, each as its title and its lines; while it `is_shut` the server refuses all."""

    url: str
    is_shut = False


@contextmanager
def webhook() -> Iterator[Inbox]:
    """A server for JSON by POST."""
    inbox = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not inbox.is_shut:
                inbox.append(f"{body['title']}\n{body['message']}")
            self.send_response(503 if inbox.is_shut else 200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, _serving(server):
        inbox.url = f"json://127.0.0.1:{server.server_address[1]}/duty"
        yield inbox


@contextmanager
def mailbox() -> Iterator[Inbox]:
    """A mail server, as much of RFC 5321 as takes one message."""
    inbox = Inbox()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                verb = line.split()[0].upper() if line.strip() else b""
                if verb == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = list(iter(self.rfile.readline, b".\r\n"))
                    message = message_from_bytes(b"".join(lines), policy=policy.default)
                    part = message.get_body(("plain",))
                    assert part is not None
                    inbox.append(f"{message['subject']}\n{part.get_content().strip()}".replace("\r\n", "\n"))
                refuses = inbox.is_shut and verb == b"MAIL"
                self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"451 later\r\n" if refuses else b"250 ok\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server, _serving(server):
        inbox.url = f"mailto://127.0.0.1:{server.server_address[1]}?from=fleet@example.org&to=duty@example.org"
        yield inbox


@contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()

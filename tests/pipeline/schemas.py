"""A schema registry inside the test."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

from chronik.pipeline.registry import Registry


class Schemas:
    """A registry with the schemas that a test gives it."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.authorisation: str | None = None
        schemas = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                schemas.asked.append(self.path)
                schemas.authorisation = self.headers["Authorization"]
                answer = schemas.answers.get(self.path)
                body = json.dumps(answer or {"error_code": 40403}).encode()
                self.send_response(200 if answer else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def registry(self) -> Registry:
        return Registry(f"http://127.0.0.1:{self.server.server_port}/")

    def add(self, number: int, schema: Any, **more: Any) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.answers[f"/schemas/ids/{number}"] = {"schema": text, **more}

    def add_version(self, subject: str, version: int, text: str, **more: Any) -> None:
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        self.answers[path] = {"schema": text, **more}

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

"""Iceberg's own REST catalog in a JVM: the servlet of its tests, with its catalog in memory.

The catalog keeps the tables' metadata; data and manifests are where the warehouse is.
"""

import importlib
import logging
import subprocess
from pathlib import Path
from typing import Any

import pyspark

from chronik.pipeline.session import java_command

JARS = Path(__file__).parents[2] / ".peers" / "iceberg-rest"
"""Where bench/iceberg-rest.sh has put them; tests fetch nothing."""
END_SECONDS_MAX = 10.0


class RestCatalog:
    """A server on a free port of the loopback; one catalog, one warehouse."""

    def __init__(self, warehouse: str) -> None:
        gateways: Any = importlib.import_module("py4j.java_gateway")
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        bridge = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
        path = ":".join(map(str, [*sorted(JARS.glob("*.jar")), bridge]))
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = [java_command() or "java", *quick, "-cp", path, "py4j.GatewayServer"]
        self._process = subprocess.Popen(
            [*command, "--die-on-broken-pipe", "--enable-auth", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        port, token = (self._process.stdout.readline().decode().strip() for _ in range(2))
        parameters = gateways.GatewayParameters(port=int(port), auth_token=token, auto_convert=True)
        self._gateway = gateways.JavaGateway(gateway_parameters=parameters)
        self._server = self._started(self._gateway.jvm, warehouse)
        self.url = f"http://127.0.0.1:{self._server.getURI().getPort()}"

    def _started(self, jvm: Any, warehouse: str) -> Any:
        iceberg, jetty = jvm.org.apache.iceberg, jvm.org.eclipse.jetty
        catalog = iceberg.inmemory.InMemoryCatalog()
        catalog.initialize("peer", {"warehouse": warehouse})
        servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
        context = jetty.servlet.ServletContextHandler(0)
        context.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
        server = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(context)
        server.start()
        return server

    def stop(self) -> None:
        self._server.stop()
        self._gateway.shutdown()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()  # the first one ends it
        self._process.wait(END_SECONDS_MAX)

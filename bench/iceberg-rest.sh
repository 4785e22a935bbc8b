#!/usr/bin/env bash
# Iceberg's own REST catalog, as its tests run it: a server that shares no code with the pipeline's client.
#
#   iceberg-rest.sh [DIR]     about 30 pinned jars into DIR (default .peers/iceberg-rest; needs mvn)
#
# The servlet is in the tests' jar of iceberg-core; Jetty 11 is the server that it is written for.
set -euo pipefail

iceberg=1.11.0 jetty=11.0.26
dir=${1:-$(cd "$(dirname "$0")/.." && pwd)/.peers/iceberg-rest}
command -v mvn >/dev/null || { echo "iceberg-rest.sh: the jars come with Maven: install mvn" >&2; exit 1; }

pom=$(mktemp -d)
trap 'rm -rf "$pom"' EXIT
cat >"$pom/pom.xml" <<POM
<project><modelVersion>4.0.0</modelVersion>
<groupId>peer</groupId><artifactId>iceberg-rest</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-core</artifactId><version>$iceberg</version></dependency>
<dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-core</artifactId><version>$iceberg</version>
<classifier>tests</classifier></dependency>
<dependency><groupId>org.eclipse.jetty</groupId><artifactId>jetty-servlet</artifactId><version>$jetty</version></dependency>
</dependencies></project>
POM
rm -rf "$dir"                           # never two versions on one class path
mvn -q -B -f "$pom/pom.xml" dependency:copy-dependencies -DoutputDirectory="$dir"
echo "Iceberg's REST catalog: $(find "$dir" -name '*.jar' | wc -l) jars in $dir"

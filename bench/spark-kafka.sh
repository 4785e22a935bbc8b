#!/usr/bin/env bash
# Spark's own JVM Kafka connector: the peer of the pipeline's bench and a judge of the protocol in its tests.
#
#   spark-kafka.sh [DIR]     four pinned jars into DIR (default .peers/spark-kafka; needs mvn)
#
# Only these four: what they depend on besides is Spark itself, so every transitive dependency is excluded.
# The token provider exists as 4.0.0 where the connector is 4.2.0; both speak the same interface.
set -euo pipefail

jars="spark:spark-sql-kafka-0-10_2.13:4.2.0 spark:spark-token-provider-kafka-0-10_2.13:4.0.0
      kafka:kafka-clients:3.9.2 commons:commons-pool2:2.13.1"
dir=${1:-$(cd "$(dirname "$0")/.." && pwd)/.peers/spark-kafka}
command -v mvn >/dev/null || { echo "spark-kafka.sh: the jars come with Maven: install mvn" >&2; exit 1; }

pom=$(mktemp -d)
trap 'rm -rf "$pom"' EXIT
{
  echo "<project><modelVersion>4.0.0</modelVersion>"
  echo "<groupId>peer</groupId><artifactId>spark-kafka</artifactId><version>1</version><dependencies>"
  for jar in $jars; do
    IFS=: read -r group name version <<<"$jar"
    echo "<dependency><groupId>org.apache.$group</groupId><artifactId>$name</artifactId><version>$version</version>"
    echo "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
  done
  echo "</dependencies></project>"
} >"$pom/pom.xml"
rm -rf "$dir"                           # never two versions on one class path
mvn -q -B -f "$pom/pom.xml" dependency:copy-dependencies -DoutputDirectory="$dir"
echo "spark's Kafka connector: $(find "$dir" -name '*.jar' | wc -l) jars in $dir"

#!/usr/bin/env bash
# Iceberg's own JVM runtime: a reader of our tables that shares no code with their writer.
#
#   spark-iceberg.sh [DIR]     a pinned jar and the Spark that it is for into DIR (default .peers/spark-iceberg;
#                              needs mvn and python3 or PYTHON; about 500 MB)
#
# The runtime is made for Spark 4.1 and does not run in the pipeline's 4.2, so PySpark 4.1 comes along, in a
# folder of its own that no environment sees.
set -euo pipefail

group=org.apache.iceberg name=iceberg-spark-runtime-4.1_2.13 version=1.12.0 spark=4.1.4
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$([ -x "$root/.venv/bin/python" ] && echo "$root/.venv/bin/python" || echo python3)}
dir=${1:-$root/.peers/spark-iceberg}
command -v mvn >/dev/null || { echo "spark-iceberg.sh: the jar comes with Maven: install mvn" >&2; exit 1; }

pom=$(mktemp -d)
trap 'rm -rf "$pom"' EXIT
cat >"$pom/pom.xml" <<POM
<project><modelVersion>4.0.0</modelVersion>
<groupId>peer</groupId><artifactId>spark-iceberg</artifactId><version>1</version><dependencies>
<dependency><groupId>$group</groupId><artifactId>$name</artifactId><version>$version</version>
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
</dependencies></project>
POM
rm -rf "$dir"                           # never two versions on one class path
mvn -q -B -f "$pom/pom.xml" dependency:copy-dependencies -DoutputDirectory="$dir"
"$python" -m pip install --quiet --disable-pip-version-check --target "$dir/python" "pyspark==$spark"
echo "Iceberg $version for the JVM and Spark $spark are in $dir"

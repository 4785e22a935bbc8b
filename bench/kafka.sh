#!/usr/bin/env bash
# Apache Kafka from Maven jars: the peer of the benchmarks and the judge of the client tests. Loopback only.
#
#   kafka.sh install DIR               jars into DIR/libs (needs mvn; KAFKA_VERSION overrides the version)
#   kafka.sh start DIR N BASEPORT      N-node KRaft cluster (combined broker+controller), in the background;
#                                      brokers on BASEPORT..BASEPORT+N-1, controllers on the N ports after them
#   kafka.sh pids DIR                  pids of the running nodes, comma separated (for bench.py --pids)
#   kafka.sh stop DIR                  stops exactly those pids; the data stays and the next start reuses it
#   kafka.sh tool DIR CLASS [ARGS..]   runs a tool class, e.g. org.apache.kafka.tools.TopicCommand
#
# Settings are Kafka's own defaults (so no fsync per write) except where server.properties below says otherwise.
set -euo pipefail

usage() { sed -n '2,/^set -euo/{/^#/!d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
die() { echo "kafka.sh: $*" >&2; exit 1; }
[ $# -ge 2 ] || usage
cmd=$1; mkdir -p "$2"; dir=$(cd "$2" && pwd); shift 2

version=${KAFKA_VERSION:-4.3.1}       # newest 4.x when written; the broker needs Java 17+
log4j=${LOG4J_VERSION:-2.25.4}        # the log4j2 that this Kafka release depends on
heap=${KAFKA_HEAP:--Xms1g -Xmx1g}     # what Kafka's own start script uses
gc="-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent"

log4j_conf() { # file level target
  cat >"$1" <<EOF
rootLogger.level = $2
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = $3
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
EOF
}

install() {
  local a deps=
  for a in kafka:kafka_2.13:$version kafka:kafka-server:$version kafka:kafka-tools:$version \
           logging.log4j:log4j-core:$log4j logging.log4j:log4j-slf4j-impl:$log4j; do
    IFS=: read -r g i v <<<"$a"
    deps+="<dependency><groupId>org.apache.$g</groupId><artifactId>$i</artifactId>"
    deps+="<version>$v</version></dependency>"$'\n'
  done
  cat >"$dir/pom.xml" <<EOF
<project><modelVersion>4.0.0</modelVersion>
<groupId>peer</groupId><artifactId>kafka-libs</artifactId><version>1</version>
<dependencies>
$deps</dependencies></project>
EOF
  rm -rf "$dir/libs"                  # never two versions on one class path
  mvn -q -B -f "$dir/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$dir/libs"
  echo "kafka $version: $(ls "$dir/libs" | wc -l) jars in $dir/libs"
}

tool() {
  [ -d "$dir/libs" ] || die "no $dir/libs: run install first"
  log4j_conf "$dir/tools-log4j2.properties" WARN SYSTEM_ERR
  exec java -Xmx512m -cp "$dir/libs/*" "-Dlog4j2.configurationFile=file:$dir/tools-log4j2.properties" "$@"
}

alive() { # pidfile -> true while that pid is still the JVM we started (guards against a reused pid)
  [ -f "$1" ] && tr '\0' ' ' 2>/dev/null <"/proc/$(cat "$1")/cmdline" | grep -qF " kafka.Kafka ${1%.pid}.properties"
}

node_conf() { # node N BASEPORT
  local i=$1 n=$2 base=$3 k voters=
  for ((k = 1; k <= n; k++)); do voters+="$k@127.0.0.1:$((base + n + k - 1)),"; done
  cat >"$dir/run/node$i.properties" <<EOF
process.roles=broker,controller
node.id=$i
controller.quorum.voters=${voters%,}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$((base + i - 1)),CONTROLLER://127.0.0.1:$((base + n + i - 1))
log.dirs=$dir/data/node$i
num.partitions=3
default.replication.factor=$n
min.insync.replicas=$((n / 2 + 1))
# the internal topics want 3 replicas, which one node cannot give
offsets.topic.replication.factor=$n
transaction.state.log.replication.factor=$n
transaction.state.log.min.isr=$((n / 2 + 1))
share.coordinator.state.topic.replication.factor=$n
share.coordinator.state.topic.min.isr=$((n / 2 + 1))
${KAFKA_PROPERTIES:-}
EOF
}

start() {
  [ $# = 2 ] || usage
  local n=$1 base=$2 i f t
  [ "$n" = 1 ] || [ "$n" = 3 ] || die "N must be 1 or 3"
  [ -d "$dir/libs" ] || die "no $dir/libs: run install first"
  mkdir -p "$dir/run" "$dir/data"
  for f in "$dir"/run/*.pid; do ! alive "$f" || die "already running: $f"; done
  # One cluster id per data directory, and no mixing of cluster shapes in it.
  [ -f "$dir/data/cluster" ] ||
    echo "$(head -c16 /dev/urandom | base64 | tr '+/' 'ab' | tr -d =) $n $base" >"$dir/data/cluster"
  read -r id was_n was_base <"$dir/data/cluster"
  [ "$was_n $was_base" = "$n $base" ] || die "$dir/data holds a cluster of $was_n at $was_base: remove it first"
  rm -f "$dir"/run/*                  # logs and settings of the run before
  log4j_conf "$dir/run/log4j2.properties" INFO SYSTEM_OUT
  for ((i = 1; i <= n; i++)); do
    node_conf "$i" "$n" "$base"
    [ -f "$dir/data/node$i/meta.properties" ] ||
      (tool kafka.tools.StorageTool format -t "$id" -c "$dir/run/node$i.properties") >>"$dir/run/format.log" 2>&1 ||
      die "format failed, see $dir/run/format.log"
  done
  for ((i = 1; i <= n; i++)); do
    # setsid: the node outlives this shell and its terminal; it execs in place, so $! is the JVM
    setsid java $heap $gc -Djava.awt.headless=true -cp "$dir/libs/*" \
      "-Dlog4j2.configurationFile=file:$dir/run/log4j2.properties" \
      kafka.Kafka "$dir/run/node$i.properties" >"$dir/run/node$i.log" 2>&1 </dev/null &
    echo $! >"$dir/run/node$i.pid"
    for ((t = 0; t < 100; t++)); do ! alive "$dir/run/node$i.pid" || break; sleep 0.01; done # until it is a JVM
  done
  pids
}

pids() {
  local f out=
  for f in "$dir"/run/*.pid; do ! alive "$f" || out+=",$(cat "$f")"; done
  echo "${out#,}"
}

stop() {
  local f t
  for f in "$dir"/run/*.pid; do ! alive "$f" || kill "$(cat "$f")"; done
  for f in "$dir"/run/*.pid; do
    for ((t = 0; t < 150; t++)); do alive "$f" || break; sleep 0.2; done
    ! alive "$f" || { echo "kafka.sh: killing $(cat "$f"), still up after 30 s" >&2; kill -9 "$(cat "$f")"; }
    rm -f "$f"
  done
}

case $cmd in
  install | start | pids | stop | tool) "$cmd" "$@" ;;
  *) usage ;;
esac

#!/usr/bin/env python3
"""Benchmark of any Kafka-protocol server. One JSON line per measured case on stdout.

  bench.py --name kafka --bootstrap 127.0.0.1:9092 [--pids PID,PID..] [--replication 3] [--phases a,c] [--scale 0.1]

Client: confluent-kafka (librdkafka), every producer and consumer in a process of its own. Phases:
  s  time from the start of --pids to the first Metadata answer, then idle RSS, anonymous memory and CPU (run right after a start)
  a  produce, acks=1 and acks=all: 1M records of 100 B, 300k of 1 KiB; linger 5 ms, no compression
  b  the same in small batches: at most 200 records each, 500k records of 100 B
  c  consume what a and b produced, from the first record to the last (alone: produces, unmeasured, first)
  d  end-to-end latency: 500 records/s, acks=all, linger 0, for 10 s after --warm seconds
  e  round trip of one produce at a time, acks=1, 2000 sends after 100 of warm-up
(f) In every line, over --pids and their child processes: cpu_s (user+system), rss_peak_mb (sum of the peaks in
  that phase), anon_peak_mb (highest sum of RssAnon seen in samples every 50 ms: memory that is not mapped files)
  and cpu_s_per_gb (GB = 1e9 bytes of record values). client_cpu_s shows when the client is the limit;
  other_cpu_s is all else that ran on the machine meanwhile, stolen_s what a virtual machine's host took away: a case from
  which more than --stolen of the time was taken is done again, up to --tries times, and the calmest one counts.
Before each case of a, b and c --touch MB of page cache are filled and freed: on a virtual machine fresh pages cost more than
  the write into them.
Counts: acked = sent, and neither failed (a delivery report with an error) nor unreported in time; log_end = records
the server says it holds (below acked: loss, above: duplicates), received = what a consumer got.
A producer gets a report of every record, as an application that must know does: with small records the client's own thread
is the limit then, at a microsecond a record. With --reports errors it asks for failures only, and the servers differ by more.
Exit status 1 if any count is not what it should be, or a case ran into --limit.
"""
import argparse, json, multiprocessing, os, re, struct, sys, tempfile, threading, time
from collections import Counter
from functools import partial
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition, libversion
from confluent_kafka.admin import AdminClient, NewTopic

now = time.monotonic                        # one clock for all processes of the machine
CTX = multiprocessing.get_context("spawn")  # librdkafka does not survive a fork
TICK = os.sysconf("SC_CLK_TCK")


# ---- clients: each runs in its own process and returns a dict ---------------------------------------------------

def base(bootstrap, **conf):
    return {"bootstrap.servers": bootstrap, "socket.nagle.disable": True, "log_level": 2, **conf}


def know(client, topic):
    """Waits until the client knows the topic: the broker it asks may have heard of it later than another one."""
    stop = now() + 10
    while client.list_topics(topic, timeout=10).topics[topic].error is not None and now() < stop:
        time.sleep(0.02)


def produce(bootstrap, topic, records, size, acks, limit, conf):
    """Sends `records` and waits until none is under way; gives up at `limit` seconds."""
    errors, batches = Counter(), Counter()

    def report(err, _msg):
        if err is not None:
            errors[err.name()] += 1

    def stats(text):
        seen = json.loads(text)["topics"].get(topic, {}).get("batchcnt", {})
        batches.update({k: seen.get(k, 0) for k in ("sum", "cnt")})

    p = Producer(base(bootstrap, **{"acks": acks, "linger.ms": 5, "compression.type": "none", "stats_cb": stats,
                                    "on_delivery": report, "delivery.report.only.error": True,
                                    "statistics.interval.ms": 200, "message.timeout.ms": limit * 1000, **conf}))
    know(p, topic)
    value, sent, start = os.urandom(size), 0, now()
    while sent < records and now() - start < limit:
        try:
            for _ in range(min(500, records - sent)):
                p.produce(topic, value)
                sent += 1
            p.poll(0)
        except BufferError:  # the local queue is full: let some leave
            p.poll(0.01)
    left = p.flush(max(1, limit - (now() - start)))
    failed = errors.total()
    return dict(start=start, end=now(), sent=sent, acked=sent - failed - left, failed=failed, unreported=left,
                errors=errors, batches=batches)


def consume(bootstrap, topic, ends, limit):
    """Reads the partitions of `ends` ({partition: end offset}) from the first record until all is there."""
    c = Consumer(base(bootstrap, **{"group.id": topic, "enable.auto.commit": False, "queued.min.messages": 1000000,
                                    "fetch.queue.backoff.ms": 5}))  # its default pauses a full queue for 1 s
    know(c, topic)  # without it librdkafka itself waits 0.5 s in assign
    want, got, start = sum(ends.values()), 0, now()
    last = start
    c.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in ends])
    while got < want and now() - start < limit and now() - last < 10:
        n = sum(m.error() is None for m in c.consume(min(1000, want - got), 0.5))
        if n:
            got, last = got + n, now()
    c.close()
    return dict(start=start, end=last, received=got)


def latency_consumer(bootstrap, topic, partitions, ready, count, warm, limit):
    """Latencies of the records numbered `warm`.. by the send time in them; `ready` once all partitions are polled."""
    c = Consumer(base(bootstrap, **{"group.id": topic, "enable.auto.commit": False, "enable.partition.eof": True}))
    c.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    eof, ms, seen, stop = set(), [], set(), now() + limit
    while len(seen) < count and now() < stop:
        m = c.poll(0.5)
        t = time.monotonic_ns()
        if m is None:
            continue
        if m.error():
            if m.error().code() == KafkaError._PARTITION_EOF:
                eof.add(m.partition())
                if len(eof) == partitions:
                    ready.set()
            continue
        i, sent = struct.unpack_from("<qq", m.value())
        if i >= warm and i not in seen:
            ms.append((t - sent) / 1e6)
        seen.add(i)
    c.close()
    return dict(received=len(seen), **percentiles(ms))


def latency_producer(bootstrap, topic, rate, count, limit):
    """Open loop: record i leaves at start + i/rate, whatever became of those before it."""
    failed = Counter()
    p = Producer(base(bootstrap, **{"acks": "all", "linger.ms": 0, "message.timeout.ms": limit * 1000}))
    know(p, topic)
    start = now()
    for i in range(count):
        time.sleep(max(0, start + i / rate - now()))
        p.produce(topic, struct.pack("<qq84x", i, time.monotonic_ns()),
                  on_delivery=lambda err, _msg: err and failed.update([err.name()]))
        p.poll(0)
    sending = now() - start
    left = p.flush(limit)
    return dict(start=start, end=start + sending, failed=failed.total(), unreported=left)


def sync_producer(bootstrap, topic, count, warm, limit):
    """One record in flight at a time."""
    p = Producer(base(bootstrap, **{"acks": "1", "linger.ms": 0, "message.timeout.ms": 10000}))
    know(p, topic)
    ms, failed, value, start = [], 0, os.urandom(100), now()
    for i in range(warm + count):
        if now() - start > limit:
            break
        if i == warm:
            start = now()
        done, t = [], time.monotonic_ns()
        p.produce(topic, value, on_delivery=lambda err, _msg: done.append(err))
        while not done:
            p.poll(1)
        if done[0] is not None:
            failed += 1
        elif i >= warm:
            ms.append((time.monotonic_ns() - t) / 1e6)
    return dict(start=start, end=now(), acked=len(ms), failed=failed, **percentiles(ms))


def percentiles(ms):
    ms = sorted(ms)
    return {k: round(ms[min(len(ms) - 1, int(len(ms) * q))], 3)
            for k, q in (("p50_ms", .5), ("p95_ms", .95), ("p99_ms", .99), ("max_ms", 1)) if ms}


def fields(out):
    return {k: v for k, v in out.items() if k not in ("start", "end", "client_cpu_s")}


def child(fn, pipe, kw):
    try:
        out = fn(**kw)
    except Exception as e:  # a case that fails is a result too
        out = {"error": repr(e)}
    pipe.send({**out, "client_cpu_s": sum(os.times()[:2])})


def spawn(fn, **kw):
    r, w = CTX.Pipe(False)
    p = CTX.Process(target=child, args=(fn, w, kw), daemon=True)
    p.start()
    w.close()
    return p, r


def collect(jobs, limit):
    """Results of the jobs; one that is silent for `limit` seconds, or died, gives an error."""
    outs, stop = [], now() + limit
    for p, r in jobs:
        try:
            outs.append(r.recv() if r.poll(max(0, stop - now())) else {"error": "no result in time"})
        except EOFError:
            outs.append({"error": "client process died"})
        p.join(5)
        if p.is_alive():
            p.kill()
    return outs


# ---- server side ------------------------------------------------------------------------------------------------

def stat(pid):
    """/proc/PID/stat from field 3 (state) on."""
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()


class Server:
    """CPU and memory of the processes `pids` and all their descendants."""

    def __init__(self, pids):
        self.roots = pids

    def tree(self):
        pids = list(self.roots)
        for pid in pids:  # grows while it is walked
            try:
                for tid in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{tid}/children") as f:
                        pids += map(int, f.read().split())
            except OSError:
                pass  # gone
        return dict.fromkeys(pids)  # each once

    def each(self, fn):
        for pid in self.tree():
            try:
                yield fn(pid)
            except OSError:
                pass

    def cpu(self):  # with that of children already reaped
        return sum(self.each(lambda pid: sum(map(int, stat(pid)[11:15])))) / TICK

    def memory(self, key):
        def kb(pid):
            with open(f"/proc/{pid}/status") as f:
                found = re.search(key + r":\s+(\d+)", f.read())
            return int(found[1]) if found else 0  # a zombie has none
        return round(sum(self.each(kb)) / 1024, 1)

    def reset_peak(self):
        def reset(pid):
            with open(f"/proc/{pid}/clear_refs", "w") as f:
                f.write("5")  # the kernel starts VmHWM anew
        list(self.each(reset))

    def age(self):
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        return max(boot - int(stat(pid)[19]) / TICK for pid in self.roots)


def touch_memory(mb):
    """Takes free memory and gives it back, so that the case itself meets none that the host has to provide first.

    A virtual machine's host takes free pages back after seconds; the next one to touch them then pays three
    times the price of the write itself, and who that is depends on what ran before. A file's pages, as a log's
    are: what a process gives back comes from another corner of the allocator. Never synced: deleted before.
    """
    work = Path(__file__).resolve().parent / "work"  # on a disk; a temporary directory may be memory
    work.mkdir(exist_ok=True)
    with tempfile.TemporaryFile(dir=work) as file:
        for _ in range(mb):
            file.write(bytes(1 << 20))


class AnonPeak:
    """Highest anonymous memory of the server while the block runs; the kernel keeps no peak of it."""

    INTERVAL = 0.05  # seconds between samples

    def __init__(self, server):
        self.server, self.mb, self.stop = server, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)

    def sample(self):
        while True:
            self.mb = max(self.mb, self.server.memory("RssAnon"))
            if self.stop.wait(self.INTERVAL):
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def machine_cpu():
    """Seconds used by whatever ran, and seconds that the host gave to others while something wanted to run."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _iowait, irq, softirq, stolen = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + softirq) / TICK, stolen / TICK


# ---- the run ----------------------------------------------------------------------------------------------------

class Bench:
    def __init__(self, a):
        self.a, self.server, self.bad = a, Server(a.pids), False
        self.topics, self.filled = [], {}  # all; for each kind of record the last one, to be consumed
        self.admin = AdminClient(base(a.bootstrap, **{"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50}))
        self.tag = f"bench-{re.sub('[^A-Za-z0-9]', '-', a.name)}-{int(time.time())}-{os.getpid()}"

    def emit(self, phase, **fields):
        fields = {k: round(v, 3) if isinstance(v, float) else v for k, v in fields.items()}
        print(json.dumps({"name": self.a.name, "phase": phase, **fields}), flush=True)

    def n(self, full):
        return max(1, int(full * self.a.scale))

    def create(self, label):
        """A new topic, once all its partitions have a leader."""
        topic, stop = f"{self.tag}-{len(self.topics)}-{label}", now() + 30
        new = NewTopic(topic, num_partitions=self.a.partitions, replication_factor=self.a.replication)
        self.admin.create_topics([new], operation_timeout=10, request_timeout=15)[topic].result(20)
        self.topics.append(topic)
        while now() < stop:
            t = self.admin.list_topics(topic, timeout=10).topics[topic]
            if len(t.partitions) == self.a.partitions and all(p.leader >= 0 for p in t.partitions.values()):
                return topic
            time.sleep(0.05)
        raise RuntimeError(f"{topic}: no leaders after 30 s")

    def log_ends(self, topic, want):
        """End offset of each partition; waits up to 10 s for `want` records, for acks=1 runs ahead of the replicas."""
        c, stop = Consumer(base(self.a.bootstrap, **{"group.id": self.tag})), now() + 10
        while True:
            ends = {p: c.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in range(self.a.partitions)}
            if sum(ends.values()) >= want or now() > stop:
                c.close()
                return ends
            time.sleep(0.1)

    def case(self, phase, prepare, run, **fields):
        """Prints the line of one case, of its calmest try. `run` gets what `prepare` returns."""
        tries = []
        while len(tries) < self.a.tries:
            tries.append(self.attempt(prepare(), run, fields.get("size")))
            if not tries[-1]["ok"] or tries[-1]["stolen"] <= self.a.stolen:
                break
        best = tries[-1] if not tries[-1]["ok"] else min(tries, key=lambda t: t["stolen"])
        self.bad |= not best["ok"]
        self.emit(phase, **fields, **best, tries=len(tries))

    def attempt(self, topic, run, size):
        """What one try found, with the usage of server and machine. `run` returns (outs, fields, ok)."""
        touch_memory(self.a.touch if size else 0)  # a latency needs no memory, and no disk that has just been busy
        self.server.reset_peak()
        began, cpu, (used, stolen), own = now(), self.server.cpu(), machine_cpu(), sum(os.times()[:2])
        with AnonPeak(self.server) as anon:
            try:
                outs, result, ok = run(topic)
            except Exception as e:
                outs, result, ok = [], {"error": repr(e)}, False
        cpu, own = self.server.cpu() - cpu, sum(os.times()[:2]) - own
        used, stolen = (after - before for after, before in zip(machine_cpu(), (used, stolen), strict=True))
        client = sum(o.get("client_cpu_s", 0) for o in outs)
        if errors := [o["error"] for o in outs if "error" in o]:
            result, ok = {**result, "error": errors}, False
        done = [o for o in outs if "start" in o]
        if done:
            result["secs"] = secs = max(o["end"] for o in done) - min(o["start"] for o in done)
            count = result.get("acked", result.get("received", 0))
            if size and secs > 0:
                result |= {"rec_s": round(count / secs), "mb_s": round(count * size / secs / 1e6, 1)}
        if not all(os.path.exists(f"/proc/{pid}") for pid in self.a.pids):
            result, ok = {**result, "error": "a server process is gone"}, False
        elif self.a.pids:
            result |= {"cpu_s": cpu, "rss_peak_mb": self.server.memory("VmHWM"), "anon_peak_mb": anon.mb}
            if size and done and count:
                result["cpu_s_per_gb"] = cpu / (count * size / 1e9)
        return {**result, "client_cpu_s": client, "other_cpu_s": max(0.0, used - cpu - client - own),
                "stolen_s": stolen, "stolen": stolen / ((now() - began) * os.cpu_count()), "ok": ok}

    # -- phases

    def wait_ready(self):
        """Asks for Metadata until it answers; times of the first answer and of the first with enough brokers."""
        first, stop = None, now() + 60
        while now() < stop:
            try:
                # Older librdkafka does not notice within one question that a server has come up.
                brokers = len(self.admin.list_topics(timeout=0.05).brokers)
            except KafkaException:
                continue
            if brokers:
                first = first or now()
            if brokers >= self.a.replication:
                return first, now()
            time.sleep(0.01)
        raise TimeoutError(f"not {self.a.replication} broker(s) within 60 s")

    def start(self, asked, first, everyone):
        """Phase s. asked_from_s: age of the servers when first asked; if near ready_s, they were up before that."""
        born, cpu = now() - self.server.age(), self.server.cpu()
        time.sleep(5)
        self.emit("s", asked_from_s=asked - born, ready_s=first - born, all_brokers_s=everyone - born, start_cpu_s=cpu,
                  idle_rss_mb=self.server.memory("VmRSS"), idle_anon_mb=self.server.memory("RssAnon"),
                  idle_cpu_pct=(self.server.cpu() - cpu) / 5 * 100)

    def produce(self, phase, label, records, size, acks, **conf):
        a, label_of_topic = self.a, f"{label}-{acks}-{size}"
        reports = {"delivery.report.only.error": a.reports == "errors"}

        def run(topic):
            outs = collect([spawn(produce, bootstrap=a.bootstrap, topic=topic, records=records // a.procs, size=size,
                                  acks=acks, limit=a.limit, conf=conf | reports) for _ in range(a.procs)], a.limit + 30)
            total = {k: sum(o.get(k, 0) for o in outs) for k in ("sent", "acked", "failed", "unreported")}
            batches = sum((o["batches"] for o in outs if "batches" in o), Counter())
            errors = sum((o["errors"] for o in outs if "errors" in o), Counter())
            try:
                ends = self.log_ends(topic, total["acked"])
            except KafkaException:
                ends = {}  # the server is gone: what the client counted is worth a line all the same
            self.filled[label_of_topic] = (topic, size, ends, total["acked"])
            result = {**total, "log_end": sum(ends.values()) if ends else None}
            if batches["cnt"]:
                result["recs_per_batch"] = batches["sum"] / batches["cnt"]
            if errors:
                result["errors"] = errors
            return outs, result, records // a.procs * a.procs == total["acked"] == result["log_end"]
        prepare = partial(self.create, label_of_topic)
        if phase:
            self.case(phase, prepare, run, case=label, acks=acks, size=size)
        else:
            run(prepare())

    def consume(self):
        a = self.a
        if not self.filled:
            self.produce(None, "fill", self.n(1000000), 100, "all")
            self.produce(None, "fill", self.n(300000), 1024, "all")
        for label, (filled, size, ends, acked) in self.filled.items():
            def run(topic):
                parts = [{p: ends[p] for p in list(ends)[i::a.procs]} for i in range(a.procs)]
                outs = collect([spawn(consume, bootstrap=a.bootstrap, topic=topic, ends=e, limit=a.limit)
                                for e in parts if e], a.limit + 30)
                got = sum(o.get("received", 0) for o in outs)
                return outs, {"acked_before": acked, "received": got}, got == acked
            self.case("c", lambda: filled, run, case=label, size=size)

    def latency(self):
        a, rate = self.a, 500
        warm = a.warm * rate
        count = warm + self.n(10 * rate)

        def run(topic):
            limit, ready = count // rate + 30, CTX.Event()
            consumer = spawn(latency_consumer, bootstrap=a.bootstrap, topic=topic, partitions=a.partitions, ready=ready,
                             count=count, warm=warm, limit=limit + 30)
            if not ready.wait(30):
                return collect([consumer], 60), {"error": "the consumer did not get ready in 30 s"}, False
            made, got = outs = collect([spawn(latency_producer, bootstrap=a.bootstrap, topic=topic, rate=rate,
                                              count=count, limit=30), consumer], limit + 60)
            result = {"records": count, **fields(made), **fields(got)}
            return outs, result, got.get("received") == count and made.get("failed") == made.get("unreported") == 0
        self.case("d", partial(self.create, "latency"), run, case="end-to-end latency", acks="all", rate=rate)

    def sync(self):
        a, count = self.a, self.n(2000)

        def run(topic):
            outs = collect([spawn(sync_producer, bootstrap=a.bootstrap, topic=topic, count=count, warm=100,
                                  limit=a.limit)], a.limit + 30)
            return outs, fields(outs[0]), outs[0].get("acked") == count
        self.case("e", partial(self.create, "sync"), run, case="one in flight", acks="1")

    def run(self):
        a = self.a
        self.emit("run", bootstrap=a.bootstrap, partitions=a.partitions, replication=a.replication, scale=a.scale,
                  procs=a.procs, cpus=os.cpu_count(), load1=os.getloadavg()[0], librdkafka=libversion()[0],
                  time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        asked = now()
        try:
            steps = [("s", partial(self.start, asked, *self.wait_ready()))]
        except TimeoutError as e:
            self.emit("run", error=str(e), ok=False)
            return True
        steps += [("a", partial(self.produce, "a", "produce", self.n(records), size, acks))
                  for size, records in ((100, 1000000), (1024, 300000)) for acks in ("1", "all")]
        small = {"batch.num.messages": 200}
        steps += [("b", partial(self.produce, "b", "small-batch", self.n(500000), 100, acks, **small))
                  for acks in ("1", "all")]
        steps += [("c", self.consume), ("d", self.latency), ("e", self.sync)]
        for phase, step in steps:
            if phase in a.phases:
                try:
                    step()
                except Exception as e:  # no topic, no leader, server gone: say so and go on
                    self.bad = True
                    self.emit(phase, error=repr(e), ok=False)
        if not a.keep:
            for topic, f in self.admin.delete_topics(self.topics, request_timeout=15).items() if self.topics else ():
                try:
                    f.result(20)
                except Exception as e:  # some servers cannot: no matter for the figures
                    print(f"bench.py: {topic} not deleted: {e}", file=sys.stderr)
        return self.bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    csv = lambda kind: lambda s: [kind(x) for x in s.replace(" ", "").split(",") if x]
    p.add_argument("--name", required=True, help="label in every line")
    p.add_argument("--bootstrap", required=True, help="host:port[,host:port..]")
    p.add_argument("--pids", type=csv(int), default=[], help="pids of all server nodes, comma separated")
    p.add_argument("--partitions", type=int, default=6)
    p.add_argument("--replication", type=int, default=1)
    p.add_argument("--phases", type=csv(str), default=list("abcde"), help="of s,a,b,c,d,e (default a,b,c,d,e)")
    p.add_argument("--scale", type=float, default=1, help="factor on all counts and times")
    p.add_argument("--procs", type=int, default=1, help="producer, then consumer, processes in a, b and c")
    p.add_argument("--reports", choices=("errors", "all"), default="all", help="delivery reports a producer asks for")
    p.add_argument("--touch", type=int, default=0, help="MB of page cache touched before a case (0: none)")
    p.add_argument("--stolen", type=float, default=0.02, help="share of the time taken by the host that is borne")
    p.add_argument("--tries", type=int, default=4, help="of a case from which more was taken")
    p.add_argument("--warm", type=int, default=3, help="seconds before d is measured; a fresh JVM wants 30 or more")
    p.add_argument("--limit", type=int, default=120, help="seconds for one case")
    p.add_argument("--keep", action="store_true", help="do not delete the topics at the end")
    a = p.parse_args()
    if "s" in a.phases and not a.pids:
        p.error("phase s needs --pids")
    sys.exit(Bench(a).run())


if __name__ == "__main__":
    main()

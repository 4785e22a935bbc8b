import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.*;

/** Kafka's own Java clients behind one JSON line per call on stdin and one per answer on stdout. */
public class JavaClient {
    static final ObjectMapper JSON = new ObjectMapper();
    static String bootstrap;
    static Admin admin;
    static KafkaConsumer<byte[], byte[]> consumer;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(settings());
        Properties reading = settings();
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "none");
        reading.put("fetch.max.wait.ms", "100");
        consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            System.out.flush();
        }
        System.exit(0);
    }

    static Properties settings() {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        return p;
    }

    static ObjectNode answer(JsonNode q) {
        ObjectNode out = JSON.createObjectNode();
        try {
            out.set("result", JSON.valueToTree(call(q)));
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            short code = cause instanceof OffsetOutOfRangeException
                ? Errors.OFFSET_OUT_OF_RANGE.code() : Errors.forException(cause).code();
            out.put("code", code).put("message", cause.toString());
        }
        return out;
    }

    static Object call(JsonNode q) throws Exception {
        switch (q.get("call").asText()) {
            case "produce": return produce(q);
            case "consume": return consume(q);
            case "offsets": {
                List<TopicPartition> tp = List.of(tp(q));
                return List.of(consumer.beginningOffsets(tp).get(tp(q)), consumer.endOffsets(tp).get(tp(q)));
            }
            case "offset_at": {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(tp(q), q.get("time").asLong())).get(tp(q));
                return found == null ? null : found.offset();
            }
            case "create_topic": {
                Map<String, String> configs = new HashMap<>();
                q.get("configs").fields().forEachRemaining(e -> configs.put(e.getKey(), e.getValue().asText()));
                NewTopic topic = new NewTopic(topic(q), q.get("partitions").asInt(), (short) 1).configs(configs);
                return admin.createTopics(List.of(topic)).all().get();
            }
            case "delete_topic": return admin.deleteTopics(List.of(topic(q))).all().get();
            case "topics": return admin.listTopics().names().get();
            case "partitions": {
                Map<Integer, Integer> leaders = new TreeMap<>();
                for (TopicPartitionInfo p : admin.describeTopics(List.of(topic(q))).allTopicNames().get().get(topic(q)).partitions())
                    leaders.put(p.partition(), p.leader().id());
                return leaders;
            }
            case "create_partitions":
                return admin.createPartitions(Map.of(topic(q), NewPartitions.increaseTo(q.get("total").asInt()))).all().get();
            case "config": {
                Map<String, String> values = new TreeMap<>();
                for (ConfigEntry e : admin.describeConfigs(List.of(resource(q))).all().get().get(resource(q)).entries())
                    values.put(e.name(), e.value());
                return values;
            }
            case "alter_config": {
                ConfigEntry entry = new ConfigEntry(q.get("key").asText(), q.get("value").asText());
                return admin.incrementalAlterConfigs(
                    Map.of(resource(q), List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
            }
            case "delete_records":
                return admin.deleteRecords(Map.of(tp(q), RecordsToDelete.beforeOffset(q.get("before").asLong())))
                    .lowWatermarks().get(tp(q)).get().lowWatermark();
            case "cluster": {
                DescribeClusterResult found = admin.describeCluster();
                Map<Integer, String> brokers = new TreeMap<>();
                for (Node n : found.nodes().get()) brokers.put(n.id(), n.host() + ":" + n.port());
                return List.of(found.clusterId().get(), brokers, found.controller().get().id());
            }
            case "list_offset": {
                ListOffsetsResult.ListOffsetsResultInfo found =
                    admin.listOffsets(Map.of(tp(q), spec(q.get("spec").asText()))).partitionResult(tp(q)).get();
                return List.of(found.offset(), found.timestamp());
            }
            case "log_size": {
                long size = 0;
                for (Map<String, LogDirDescription> dirs : admin.describeLogDirs(List.of(q.get("broker").asInt())).allDescriptions().get().values())
                    for (LogDirDescription dir : dirs.values())
                        for (Map.Entry<TopicPartition, ReplicaInfo> e : dir.replicaInfos().entrySet())
                            if (e.getKey().equals(tp(q))) size += e.getValue().size();
                return size;
            }
            case "producers": {
                List<List<Number>> states = new ArrayList<>();
                for (ProducerState s : admin.describeProducers(List.of(tp(q))).partitionResult(tp(q)).get().activeProducers())
                    states.add(List.of(s.producerId(), s.producerEpoch(), s.lastSequence()));
                return states;
            }
            default: throw new IllegalArgumentException(q.toString());
        }
    }

    static List<Long> produce(JsonNode q) throws Exception {
        Properties p = settings();
        p.put("acks", q.get("acks").asText());
        p.put("compression.type", q.get("codec").asText());
        p.put("enable.idempotence", q.get("idempotent").asText());
        p.put("linger.ms", "5");
        p.put("max.request.size", "20000000");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode r : q.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode h : r.get("headers")) headers.add(new RecordHeader(h.get(0).asText(), bytes(h.get(1))));
                Long time = r.get("time").isNull() ? null : r.get("time").asLong();
                sent.add(producer.send(new ProducerRecord<>(
                    topic(q), r.get("partition").asInt(), time, bytes(r.get("key")), bytes(r.get("value")), headers)));
            }
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> f : sent) offsets.add(f.get().offset());
        return offsets;
    }

    static ArrayNode consume(JsonNode q) throws Exception {
        List<TopicPartition> where = new ArrayList<>();
        for (JsonNode p : q.get("partitions")) where.add(new TopicPartition(topic(q), p.asInt()));
        consumer.assign(where);
        for (TopicPartition tp : where) consumer.seek(tp, q.get("start").asLong());
        ArrayNode got = JSON.createArrayNode();
        long limit = System.nanoTime() + (long) (q.get("seconds").asDouble() * 1e9);
        while (got.size() < q.get("count").asInt() && System.nanoTime() < limit)
            for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(100)))
                if (got.size() < q.get("count").asInt()) got.add(received(r));
        consumer.unsubscribe();
        return got;
    }

    static ObjectNode received(ConsumerRecord<byte[], byte[]> r) throws Exception {
        ObjectNode out = JSON.createObjectNode();
        out.put("partition", r.partition()).put("offset", r.offset()).put("time", r.timestamp());
        out.put("key", r.key()).put("value", r.value());
        ArrayNode headers = out.putArray("headers");
        for (Header h : r.headers()) headers.addArray().add(h.key()).add(h.value());
        return out;
    }

    static OffsetSpec spec(String text) {
        switch (text) {
            case "earliest": return OffsetSpec.earliest();
            case "latest": return OffsetSpec.latest();
            case "max_timestamp": return OffsetSpec.maxTimestamp();
            default: return OffsetSpec.forTimestamp(Long.parseLong(text));
        }
    }

    static String topic(JsonNode q) { return q.get("topic").asText(); }

    static TopicPartition tp(JsonNode q) { return new TopicPartition(topic(q), q.get("partition").asInt()); }

    static ConfigResource resource(JsonNode q) { return new ConfigResource(ConfigResource.Type.TOPIC, topic(q)); }

    static byte[] bytes(JsonNode node) throws Exception { return node.isNull() ? null : node.binaryValue(); }
}

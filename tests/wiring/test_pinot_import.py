"""Pinot's table configs load as they are, and what is left out is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.spi import ConfigError
from streamfactory.wiring.config.catalogue import read_definitions
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.imports.pinot import read_pinot
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from streamfactory.wiring.config.definition import StreamDefinition

DATA = Path(__file__).parents[1] / "data" / "pinot"


def read_one(name: str) -> StreamDefinition:
    [definition] = read_definitions(DATA / name)
    return definition


def values(definition: StreamDefinition) -> dict[str, str]:
    return {p.key: p.text for p in definition.properties}


def notes(definition: StreamDefinition) -> list[str]:
    """Each note as ``key: what``, without its origin."""
    assert all(note.level == "warning" for note in definition.notes)
    return [str(note).partition(" [")[0] for note in definition.notes]


def read_map(**keys: Any) -> StreamDefinition:
    [definition] = read_pinot(keys, lambda pointer: f"t.json{pointer}", "table")
    return definition


def read_keys(keys: dict[str, Any]) -> StreamDefinition:
    return read_map(**keys)


# --- the fixtures -------------------------------------------------------------------


def test_legacy_place_of_stream_configs() -> None:
    definition = read_one("legacy.json")
    assert definition.name == "flights"
    assert values(definition) == {
        "streamType": "kafka",
        "stream.kafka.consumer.type": "lowlevel",
        "stream.kafka.topic.name": "flights-realtime",
        "stream.kafka.decoder.class.name": "json",
        "stream.kafka.consumer.factory.class.name": "kafka",
        "stream.kafka.consumer.prop.auto.offset.reset": "smallest",
        "stream.kafka.broker.list": "localhost:19092",
        "realtime.segment.flush.threshold.time": "3600000",
        "realtime.segment.flush.threshold.size": "50000",
    }
    dropped = "is not imported"
    unused = "it has no effect in Pinot either"
    gone = "it is of Pinot's high-level consumer, which was removed"
    assert notes(definition) == [
        f"stream.kafka.decoder.prop.format: {dropped}: {unused}",
        f"stream.kafka.zk.broker.url: {dropped}: {gone}",
        f"stream.kafka.hlc.zk.connect.string: {dropped}: {gone}",
        (
            "table config: not part of a stream, and not imported: segmentsConfig, "
            "metadata, tableIndexConfig.loadMode"
        ),
    ]


def test_properties_and_notes_report_their_line() -> None:
    definition = read_one("legacy.json")
    path = DATA / "legacy.json"
    origins = {p.key: p.origin for p in definition.properties}
    assert origins["streamType"] == f"{path}:12"
    assert origins["realtime.segment.flush.threshold.size"] == f"{path}:23"
    assert definition.notes[0].origin == f"{path}:16"
    assert definition.origin == str(path)


def test_new_place_inside_the_answer_of_the_rest_interface() -> None:
    definition = read_one("ingestion.json")
    assert definition.name == "github"
    assert values(definition) == {
        "streamType": "kafka",
        "stream.kafka.topic.name": "github",
        "stream.kafka.broker.list": "${env:KAFKA_BROKERS}",
        "stream.kafka.metadata.populate": "true",
        "stream.kafka.consumer.factory.class.name": "kafka",
        "stream.kafka.decoder.class.name": "json",
        "decode.on.error": "skip",
        "realtime.segment.flush.threshold.segment.size": "150M",
    }
    servers = "is not imported: it is about Pinot's servers"
    assert notes(definition) == [
        (
            "stream.kafka.broker.list: ${KAFKA_BROKERS:...} is a variable, whose "
            "default is not imported; imported as ${env:KAFKA_BROKERS}"
        ),
        (
            "topic.consumption.rate.limit: is not imported: it limits Pinot's "
            "servers; here set max.rows.per.second"
        ),
        f"realtime.segment.flush.autotune.initialRows: {servers}",
        f"realtime.segment.offsetAutoReset.enable: {servers}",
        f"columnMajorSegmentBuilderEnabled: {servers}",
        f"pauselessConsumptionEnabled: {servers}",
        (
            "table config: not part of a stream, and not imported: OFFLINE, "
            "tableIndexConfig.invertedIndexColumns, ingestionConfig.transformConfigs"
        ),
    ]


def test_several_topics_become_several_streams() -> None:
    first, second = read_definitions(DATA / "multi_topic.json")
    assert [first.name, second.name] == ["orders_orders.eu", "orders_orders.us"]
    assert values(first)["stream.kafka.topic.name"] == "orders.eu"
    assert values(second)["stream.kafka.decoder.class.name"] == "csv"
    # 1h is 3600000, and .size is an alias of .rows: the thresholds are the same
    assert values(second)["realtime.segment.flush.threshold.size"] == "100000"
    assert first.properties[1].origin == f"{DATA / 'multi_topic.json'}:9"
    assert second.properties[1].origin == f"{DATA / 'multi_topic.json'}:18"


def test_rules_of_several_topics_are_reported_all_at_once() -> None:
    path = DATA / "multi_topic_refused.json"
    with pytest.raises(ConfigError) as caught:
        read_definitions(path)
    rows = "realtime.segment.flush.threshold.rows"
    assert str(caught.value) == "\n".join(
        [
            f"3 problems in {path}",
            (
                f"  stream.kafka.topic.name: 'orders' is read by another stream "
                f"config, at {path}:9 "
                f"[{path}:14]"
            ),
            (
                f"  {rows}: differs from the first stream config: Pinot requires "
                f"the same value [{path}:12]"
            ),
            (
                f"  streamType: is 'pulsar', but 'kafka' in the first stream config "
                f"[{path}:17]"
            ),
        ]
    )


def test_kafka_client_keys_get_their_place() -> None:
    definition = read_one("kafka_sasl.json")
    found = values(definition)
    prefix = "stream.kafka.consumer.prop."
    assert {k.removeprefix(prefix) for k in found if k.startswith(prefix)} == {
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        "ssl.truststore.location",
        "group.id",
        "max.poll.records",
        "fetch.min.bytes",
    }
    assert found["stream.kafka.isolation.level"] == "read_committed"
    assert found[f"{prefix}sasl.jaas.config"].endswith('"${env:KAFKA_PASSWORD}";')
    notes_found = notes(definition)
    for key in ("security.protocol", "sasl.jaas.config", "group.id"):
        assert f"{key}: is imported as {prefix}{key}" in notes_found
    assert (
        "auto.offset.reset: is not imported: it is never passed to the client; for "
        "offsets out of range set out.of.range=earliest or latest"
    ) in notes_found
    assert (
        f"{prefix}fetch.min.bytes: Pinot ignores it; here it is passed to the client"
    ) in notes_found


@pytest.mark.parametrize(
    "key",
    [
        "auto.offset.reset",
        "bootstrap.servers",
        "key.serializer",
        "config.providers",
        "config.providers.env.class",
    ],
)
def test_kafka_keys_without_a_place_are_named(key: str) -> None:
    definition = read_one("kafka_sasl.json")
    assert not [k for k in values(definition) if k.endswith(key)]
    [notes_found] = [note for note in notes(definition) if note.startswith(f"{key}: ")]
    assert "is not imported" in notes_found


def test_kinesis_keys_get_their_prefix() -> None:
    definition = read_one("kinesis.json")
    found = values(definition)
    assert found["streamType"] == "kinesis"
    assert found["stream.kinesis.consumer.factory.class.name"] == "kinesis"
    assert found["stream.kinesis.region"] == "eu-central-1"
    assert found["stream.kinesis.secretKey"] == "${env:AWS_SECRET_KEY}"
    notes_found = notes(definition)
    assert "region: is imported as stream.kinesis.region" in notes_found
    assert (
        "shardIteratorType: is not imported: it has no effect in Pinot either"
    ) in notes_found


def test_pulsar_and_an_unknown_decoder() -> None:
    definition = read_one("pulsar.json")
    assert notes(definition) == []
    assert values(definition) == {
        "streamType": "pulsar",
        "stream.pulsar.topic.name": "persistent://public/default/rides",
        "stream.pulsar.bootstrap.servers": "pulsar://localhost:6650",
        "stream.pulsar.consumer.factory.class.name": "pulsar",
        "stream.pulsar.decoder.class.name": "clplog",
        "stream.pulsar.metadata.populate": "true",
        "stream.pulsar.metadata.fields": "messageId,eventTime",
        "stream.pulsar.fetch.timeout.millis": "30000",
    }


def test_bare_map_with_a_confluent_decoder() -> None:
    definition = read_one("confluent_avro.json")
    assert definition.name == "confluent_avro"
    found = values(definition)
    registry = "stream.kafka.decoder.prop.schema.registry.rest.url"
    assert found["stream.kafka.decoder.class.name"] == "avro"
    assert found[registry] == "http://localhost:8081"
    assert notes(definition) == [
        (
            "stream.kafka.schema.registry.url: is not imported: it has no effect "
            "in Pinot either; the decoder has decoder.prop.schema.registry.rest.url"
        ),
        "value.serializer: is not imported: it has no effect in Pinot either",
    ]


def test_both_places_are_refused_as_in_pinot() -> None:
    with pytest.raises(ConfigError) as caught:
        read_definitions(DATA / "both_places.json")
    [problem] = caught.value.problems
    assert str(problem) == (
        "tableIndexConfig.streamConfigs: and ingestionConfig."
        "streamIngestionConfig.streamConfigMaps exclude each other: Pinot refuses both "
        f"[{DATA / 'both_places.json'}:5]"
    )


def test_offline_table_has_no_stream() -> None:
    with pytest.raises(ConfigError) as caught:
        read_definitions(DATA / "offline.json")
    [problem] = caught.value.problems
    assert problem.what == "is of type OFFLINE: only REALTIME tables read streams"


def test_every_fixture_that_is_good_passes_through_json_unchanged(
    tmp_path: Path,
) -> None:
    # Pinot's REST interface answers in one line and in its own order of keys.
    for path in DATA.glob("*.json"):
        if path.stem in ("both_places", "offline", "multi_topic_refused"):
            continue
        copy = tmp_path / path.name
        body = json.loads(path.read_text())
        copy.write_text(json.dumps(body, sort_keys=True))
        original, copied = read_definitions(path), read_definitions(copy)
        assert [d.name for d in original] == [d.name for d in copied]
        assert [values(d) for d in original] == [values(d) for d in copied]


# --- classes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("java", "name"),
    [
        ("org.apache.pinot.plugin.stream.kafka20.KafkaConsumerFactory", "kafka"),
        ("org.apache.pinot.plugin.stream.kafka30.KafkaConsumerFactory", "kafka"),
        ("org.apache.pinot.plugin.stream.kafka40.KafkaConsumerFactory", "kafka"),
        ("org.apache.pinot.plugin.stream.kafka09.KafkaConsumerFactory", "kafka"),
        ("org.apache.pinot.plugin.stream.kafka.KafkaConsumerFactory", "kafka"),
        ("org.apache.pinot.core.realtime.impl.kafka.KafkaConsumerFactory", "kafka"),
        ("org.apache.pinot.core.realtime.impl.kafka2.KafkaConsumerFactory", "kafka"),
        ("org.apache.pinot.core.realtime.impl.kafka3.KafkaConsumerFactory", "kafka"),
        (
            "com.linkedin.pinot.core.realtime.impl.kafka.KafkaConsumerFactory",
            "kafka",
        ),
        (
            "shaded.org.apache.pinot.plugin.stream.kafka30.KafkaConsumerFactory",
            "kafka",
        ),
        ("org.apache.pinot.plugin.stream.kinesis.KinesisConsumerFactory", "kinesis"),
        ("org.apache.pinot.plugin.stream.pulsar.PulsarConsumerFactory", "pulsar"),
    ],
)
def test_factories_of_every_version_have_a_name(java: str, name: str) -> None:
    key = f"stream.{name}.consumer.factory.class.name"
    definition = read_keys({"streamType": name, key: java})
    assert values(definition) == {"streamType": name, key: name}
    assert not definition.notes


@pytest.mark.parametrize(
    ("java", "name"),
    [
        ("org.apache.pinot.plugin.inputformat.json.JSONMessageDecoder", "json"),
        ("org.apache.pinot.plugin.stream.kafka.KafkaJSONMessageDecoder", "json"),
        ("org.apache.pinot.core.realtime.impl.kafka.KafkaJSONMessageDecoder", "json"),
        (
            "com.linkedin.pinot.core.realtime.impl.kafka.KafkaJSONMessageDecoder",
            "json",
        ),
        (
            (
                "org.apache.pinot.plugin.inputformat.json.confluent."
                "KafkaConfluentSchemaRegistryJsonMessageDecoder"
            ),
            "json",
        ),
        ("org.apache.pinot.plugin.inputformat.avro.SimpleAvroMessageDecoder", "avro"),
        ("org.apache.pinot.core.realtime.stream.SimpleAvroMessageDecoder", "avro"),
        (
            (
                "org.apache.pinot.plugin.inputformat.avro.confluent."
                "KafkaConfluentSchemaRegistryAvroMessageDecoder"
            ),
            "avro",
        ),
        (
            "org.apache.pinot.plugin.inputformat.protobuf.ProtoBufMessageDecoder",
            "protobuf",
        ),
        (
            (
                "org.apache.pinot.plugin.inputformat.protobuf."
                "KafkaConfluentSchemaRegistryProtoBufMessageDecoder"
            ),
            "protobuf",
        ),
        ("org.apache.pinot.plugin.inputformat.csv.CSVMessageDecoder", "csv"),
        ("org.apache.pinot.plugin.inputformat.arrow.ArrowMessageDecoder", "arrow"),
        ("org.apache.pinot.plugin.inputformat.bson.BSONMessageDecoder", "bson"),
        ("org.apache.pinot.plugin.inputformat.clplog.CLPLogMessageDecoder", "clplog"),
    ],
)
def test_decoders_of_every_version_have_a_name(java: str, name: str) -> None:
    key = "stream.kafka.decoder.class.name"
    definition = read_keys({"streamType": "kafka", key: java})
    assert values(definition)[key] == name
    assert not definition.notes


@pytest.mark.parametrize(
    ("java", "note"),
    [
        (
            "org.apache.pinot.plugin.inputformat.avro.KafkaAvroMessageDecoder",
            (
                "is imported as 'avro': the 16-byte schema hash that it expects before "
                "each message is not supported"
            ),
        ),
        (
            "org.apache.pinot.plugin.inputformat.protobuf.ProtoBufCodeGenMessageDecoder",
            (
                "is imported as 'protobuf': classes in a Java archive cannot be "
                "used here: configure a descriptor file for the decoder"
            ),
        ),
    ],
)
def test_a_decoder_that_loses_something_reports_it(java: str, note: str) -> None:
    key = "stream.kafka.decoder.class.name"
    definition = read_keys({"streamType": "kafka", key: java})
    assert notes(definition) == [f"{key}: {note}"]


def test_a_strangers_class_of_a_known_name_is_not_taken_for_pinots() -> None:
    key = "stream.kafka.consumer.factory.class.name"
    definition = read_keys(
        {"streamType": "kafka", key: "com.acme.stream.KafkaConsumerFactory"}
    )
    assert values(definition)[key] == "com.acme.stream.KafkaConsumerFactory"
    assert notes(definition) == [
        (
            f"{key}: 'com.acme.stream.KafkaConsumerFactory' is a Java class without "
            f"an equivalent here; docs/spi.md: how to write one"
        )
    ]


def test_our_own_names_may_stand_in_a_table_config() -> None:
    keys = {"streamType": "kafka", "stream.kafka.decoder.class.name": "json"}
    assert values(read_keys(keys)) == keys
    assert not read_keys(keys).notes


def test_a_type_of_another_name_follows_its_factory() -> None:
    definition = read_keys(
        {
            "streamType": "myKafka",
            "stream.myKafka.topic.name": "clicks",
            "stream.myKafka.consumer.factory.class.name": (
                "org.apache.pinot.plugin.stream.kafka30.KafkaConsumerFactory"
            ),
            "stream.kafka.broker.list": "localhost:9092",
        }
    )
    assert values(definition) == {
        "streamType": "kafka",
        "stream.kafka.topic.name": "clicks",
        "stream.kafka.consumer.factory.class.name": "kafka",
        "stream.kafka.broker.list": "localhost:9092",
    }
    assert notes(definition) == [
        "streamType: 'myKafka' is imported as 'kafka', by its consumer factory"
    ]


# --- single keys ----------------------------------------------------------------------


@pytest.mark.parametrize("word", ["lowlevel", "simple", "LowLevel"])
def test_consumer_type_by_partition_is_carried_over(word: str) -> None:
    keys = {"streamType": "kafka", "stream.kafka.consumer.type": word}
    definition = read_keys(keys)
    assert values(definition) == keys
    assert not definition.notes


@pytest.mark.parametrize("word", ["highlevel", "HighLevel", " highLevel "])
def test_consumer_type_highlevel_is_left_out_and_named(word: str) -> None:
    keys = {"streamType": "kafka", "stream.kafka.consumer.type": word}
    definition = read_keys(keys)
    assert values(definition) == {"streamType": "kafka"}
    assert notes(definition) == [
        (
            "stream.kafka.consumer.type: is not imported: Pinot ignores it and "
            "reads partitions; to read as a member of a group set group.id and "
            "checkpoint.location"
        )
    ]


@pytest.mark.parametrize(
    "criteria", ["smallest", "largest", "2d", "4h30m", "2022-08-09T12:31:38.222Z"]
)
def test_offset_criteria_come_along_and_are_good_here(criteria: str) -> None:
    key = "stream.kafka.consumer.prop.auto.offset.reset"
    definition = read_keys(
        {
            "streamType": "kafka",
            "stream.kafka.topic.name": "clicks",
            "stream.kafka.broker.list": "localhost:9092",
            "stream.kafka.decoder.class.name": "raw",
            key: criteria,
        }
    )
    assert values(definition)[key] == criteria
    assert not inspect(definition, PluginManager({})).errors


@pytest.mark.parametrize(("word", "policy"), [("true", "fail"), (False, "skip")])
def test_stop_on_decode_error_becomes_a_policy(word: Any, policy: str) -> None:
    definition = read_keys({"streamType": "kafka", "stopOnDecodeError": word})
    assert values(definition)["decode.on.error"] == policy


def test_values_that_are_no_text_are_problems_all_at_once() -> None:
    keys = {
        "streamType": "kafka",
        "stopOnDecodeError": "maybe",
        "stream.kafka.a": 0.5,
        "stream.kafka.b": None,
        "stream.kafka.c": ["x"],
        "stream.kafka.d": {},
    }
    with pytest.raises(ConfigError) as caught:
        read_keys(keys)
    assert [str(problem) for problem in caught.value.problems] == [
        (
            "stopOnDecodeError: 'maybe' is neither true nor false "
            "[t.json/stopOnDecodeError]"
        ),
        (
            "stream.kafka.a: is a number with a fraction or exponent: put it in quotes "
            "[t.json/stream.kafka.a]"
        ),
        "stream.kafka.b: is null: omit the key [t.json/stream.kafka.b]",
        "stream.kafka.c: is an array: write a string, a,b,c [t.json/stream.kafka.c]",
        "stream.kafka.d: is an object, expected a string [t.json/stream.kafka.d]",
    ]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("${BROKERS}", "${env:BROKERS}"),
        ("${env:BROKERS}", "${env:BROKERS}"),
        ("${file:/run/secrets/x}", "${file:/run/secrets/x}"),
        ("$${literal}", "$${literal}"),
        ("a ${literal} b", "a $${literal} b"),
        ("pa${ss", "pa${ss"),
        ("user=u password=${env:P}", "user=u password=${env:P}"),
    ],
)
def test_variables_mean_what_they_mean_in_pinot(written: str, read: str) -> None:
    definition = read_keys({"streamType": "kafka", "stream.kafka.x": written})
    assert values(definition)["stream.kafka.x"] == read


def test_a_default_of_a_variable_is_never_shown() -> None:
    definition = read_keys(
        {"streamType": "kafka", "sasl.jaas.config": "${JAAS:password=hunter2}"}
    )
    assert "hunter2" not in str(definition)
    assert "hunter2" not in "".join(notes(definition))


def test_unknown_keys_are_left_to_the_validator() -> None:
    keys = {
        "streamType": "kafka",
        "realtime.segment.flush.treshold.rows": "1",
        "startingOffsets": "earliest",
    }
    assert values(read_keys(keys)) == keys


@pytest.mark.parametrize(
    "key",
    [
        "realtime.segment.flush.threshold.rows",
        "realtime.segment.flush.threshold.size",
        "realtime.segment.flush.threshold.size.llc",
        "realtime.segment.flush.threshold.segment.rows",
        "realtime.segment.flush.threshold.time",
        "realtime.segment.flush.threshold.time.llc",
        "realtime.segment.flush.threshold.segment.size",
        "realtime.segment.flush.desired.size",
    ],
)
def test_flush_thresholds_and_their_aliases_stay(key: str) -> None:
    definition = read_keys({"streamType": "kafka", key: "100000"})
    assert values(definition)[key] == "100000"
    assert not definition.notes


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({"tableName": "t"}, "has no stream config: neither tableIndexConfig."),
        ({"streamConfigMaps": "kafka"}, "is not an array of objects"),
        ({"streamConfigMaps": ["kafka"]}, "is not an object"),
        ({"streamConfigs": "kafka"}, "is not an object"),
        ({"OFFLINE": {"tableName": "t"}}, "is of type OFFLINE"),
    ],
)
def test_a_body_without_stream_configs_is_a_problem(
    body: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_pinot(body, lambda pointer: "t.json", "t")
    [problem] = caught.value.problems
    assert problem.what.startswith(what)


def test_topics_with_slashes_make_names_without() -> None:
    maps = [
        {"streamType": "pulsar", "stream.pulsar.topic.name": f"persistent://a/b/{x}"}
        for x in "xy"
    ]
    found = read_pinot({"streamConfigMaps": maps}, lambda pointer: "t.json", "t")
    assert [d.name for d in found] == ["t_persistent_a_b_x", "t_persistent_a_b_y"]


@pytest.mark.parametrize(
    "name",
    ["legacy", "ingestion", "multi_topic", "kafka_sasl", "kinesis", "pulsar"],
)
def test_good_table_configs_have_no_error_for_the_validator(name: str) -> None:
    for definition in read_definitions(DATA / f"{name}.json"):
        assert not inspect(definition, PluginManager({})).errors


# --- what Pinot ignores ---------------------------------------------------------------

FLUSH = "realtime.segment.flush.threshold"
KAFKA = {
    "streamType": "kafka",
    "stream.kafka.topic.name": "clicks",
    "stream.kafka.broker.list": "localhost:9092",
    "stream.kafka.decoder.class.name": "json",
}
SIZE = f"{FLUSH}.size"


@pytest.mark.parametrize(
    ("given", "kept", "complaint"),
    [
        pytest.param(
            {SIZE: "100M"},
            {},
            f"{SIZE}: is not imported: '100M' is not a whole number; Pinot ignores "
            f"such a value; for a size in bytes write {FLUSH}.segment.size",
            id="a size where rows are expected",
        ),
        pytest.param(
            {f"{FLUSH}.rows": "0", SIZE: "100M"},
            {f"{FLUSH}.rows": "0"},
            f"{SIZE}: is not imported: Pinot uses {FLUSH}.rows instead",
            id="an old spelling beside the new one",
        ),
        pytest.param(
            {f"{SIZE}.llc": "7", SIZE: "5"},
            {SIZE: "5"},
            f"{SIZE}.llc: is not imported: Pinot uses {SIZE} instead",
            id="two old spellings",
        ),
        pytest.param(
            {f"{FLUSH}.rows": "many"},
            {},
            f"{FLUSH}.rows: is not imported: 'many' is not a whole number; Pinot "
            "ignores such a value",
            id="no number",
        ),
        pytest.param(
            {f"{FLUSH}.time": "1 day"},
            {},
            f"{FLUSH}.time: is not imported: '1 day' is not a duration: write "
            f"250ms, "
            "30s, 5m, 4h30m, 1d, or plain milliseconds; Pinot ignores such a value",
            id="no period",
        ),
        pytest.param(
            {"stream.kafka.fetch.timeout.millis": "soon"},
            {},
            "stream.kafka.fetch.timeout.millis: is not imported: 'soon' is not "
            "a duration: write 250ms, 30s, 5m, 4h30m, 1d, or plain milliseconds; Pinot "
            "ignores such a value",
            id="no timeout",
        ),
    ],
)
def test_values_that_pinot_ignores_are_left_out_with_a_warning(
    given: dict[str, str], kept: dict[str, str], complaint: str
) -> None:
    definition = read_keys({**KAFKA, **given})
    assert values(definition) == {**KAFKA, **kept}
    [note] = notes(definition)
    [written] = [str(one) for one in definition.notes]
    assert complaint.startswith(note)
    assert written.replace(f" [{definition.notes[0].origin}]", "") == complaint
    assert inspect(definition, PluginManager()).errors == []


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (SIZE, "50000"),
        (SIZE, "${env:ROWS}"),
        (f"{FLUSH}.segment.size", "1P"),
        (f"{FLUSH}.segment.size", "200M"),
    ],
)
def test_values_that_pinot_reads_are_carried_over(key: str, text: str) -> None:
    definition = read_keys({**KAFKA, key: text})
    assert values(definition) == {**KAFKA, key: text}
    assert notes(definition) == []

#!/bin/sh
# Runs a Kafka broker for this machine, until it is interrupted: needs Java 17 and Maven.
set -eu
cd "$(dirname "$0")"
if [ ! -e lib/.complete ]; then
  echo "fetching Kafka's jars with Maven, once ..." >&2
  mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib
  touch lib/.complete
fi
if [ ! -d data ]; then
  java -cp 'lib/*' kafka.tools.StorageTool format -c server.properties \
    -t "$(java -cp 'lib/*' kafka.tools.StorageTool random-uuid)" >/dev/null
fi
echo "Kafka runs on 127.0.0.1:9092; Ctrl-C stops it" >&2
exec java -Xmx512m -cp 'lib/*' kafka.Kafka server.properties

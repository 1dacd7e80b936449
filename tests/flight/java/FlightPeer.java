import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.ExecutionException;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.PutResult;
import org.apache.arrow.flight.SyncPutListener;
import org.apache.arrow.flight.Criteria;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;

/**
 * A Flight client of Arrow Java that knows nothing of streamfactory.
 *
 * <p>{@code list PORT}: path, rows and endpoints of each flight. {@code get PORT TOPIC}: rows, a
 * sum, and the last text. {@code put PORT TOPIC BATCHES ROWS}: prints what the server sends.
 */
public final class FlightPeer {
    private FlightPeer() {}

    public static void main(String[] words) throws Exception {
        Location location = Location.forGrpcInsecure("127.0.0.1", Integer.parseInt(words[1]));
        try (RootAllocator allocator = new RootAllocator();
                FlightClient client = FlightClient.builder(allocator, location).build()) {
            switch (words[0]) {
                case "list" -> list(client);
                case "get" -> get(client, words[2]);
                default -> put(
                        client,
                        allocator,
                        words[2],
                        Integer.parseInt(words[3]),
                        Integer.parseInt(words[4]));
            }
        } catch (FlightRuntimeException error) {
            refused(error);
        } catch (ExecutionException error) { // of a put's replies
            if (!(error.getCause() instanceof FlightRuntimeException cause)) {
                throw error;
            }
            refused(cause);
        }
    }

    private static void refused(FlightRuntimeException error) {
        System.out.println(error.status().code() + ": " + error.status().description());
        System.exit(3);
    }

    private static void list(FlightClient client) {
        for (FlightInfo info : client.listFlights(Criteria.ALL)) {
            String path = String.join("/", info.getDescriptor().getPath());
            System.out.println(path + " " + info.getRecords() + " " + info.getEndpoints().size());
        }
    }

    private static void get(FlightClient client, String topic) throws Exception {
        long count = 0;
        long sum = 0;
        Object last = null;
        FlightInfo info = client.getInfo(FlightDescriptor.path(topic));
        for (FlightEndpoint endpoint : info.getEndpoints()) {
            try (FlightStream stream = client.getStream(endpoint.getTicket())) {
                VectorSchemaRoot root = stream.getRoot();
                while (stream.next()) {
                    BigIntVector n = (BigIntVector) root.getVector("n");
                    for (int row = 0; row < root.getRowCount(); row++) {
                        sum += n.get(row);
                        last = root.getVector("text").getObject(row);
                    }
                    count += root.getRowCount();
                }
            }
        }
        System.out.println(count + " " + sum + " " + last);
    }

    private static void put(
            FlightClient client, RootAllocator allocator, String topic, int batches, int rows)
            throws Exception {
        try (BigIntVector n = new BigIntVector("n", allocator);
                VarCharVector text = new VarCharVector("text", allocator);
                VectorSchemaRoot root =
                        new VectorSchemaRoot(
                                List.of(n.getField(), text.getField()), List.of(n, text));
                SyncPutListener replies = new SyncPutListener()) {
            FlightClient.ClientStreamListener put =
                    client.startPut(FlightDescriptor.path(topic), root, replies);
            for (int batch = 0; batch < batches; batch++) {
                for (int row = 0; row < rows; row++) {
                    int number = batch * rows + row;
                    n.setSafe(row, number);
                    if (number % 3 == 0) {
                        text.setNull(row);
                    } else {
                        text.setSafe(row, ("é" + number).getBytes(StandardCharsets.UTF_8));
                    }
                }
                root.setRowCount(rows);
                put.putNext();
            }
            put.completed();
            for (PutResult reply = replies.read(); reply != null; reply = replies.read()) {
                byte[] bytes = new byte[(int) reply.getApplicationMetadata().readableBytes()];
                reply.getApplicationMetadata().readBytes(bytes);
                reply.close();
                System.out.println(new String(bytes, StandardCharsets.UTF_8));
            }
            put.getResult();
        }
    }
}

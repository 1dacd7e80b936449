import java.io.BufferedOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;

/**
 * Arrow Java at the other end: {@code write|read listen|connect PORT [BATCHES ROWS]}.
 *
 * <p>Writing ends its stream well; reading prints rows, a sum, and the last text.
 */
public final class ArrowPeer {
    private ArrowPeer() {}

    public static void main(String[] words) throws Exception {
        try (Socket socket = open(words[1], Integer.parseInt(words[2]))) {
            if (words[0].equals("write")) {
                write(socket, Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            } else {
                read(socket);
            }
        }
    }

    private static Socket open(String way, int port) throws Exception {
        if (way.equals("connect")) {
            return new Socket("127.0.0.1", port);
        }
        try (ServerSocket server = new ServerSocket(port)) {
            System.out.println("listening");
            server.setSoTimeout(30_000);
            return server.accept();
        }
    }

    private static void write(Socket socket, int batches, int rows) throws Exception {
        try (RootAllocator allocator = new RootAllocator();
                BigIntVector n = new BigIntVector("n", allocator);
                VarCharVector text = new VarCharVector("text", allocator);
                VectorSchemaRoot root = new VectorSchemaRoot(List.of(n.getField(), text.getField()), List.of(n, text));
                OutputStream out = new BufferedOutputStream(socket.getOutputStream());
                ArrowStreamWriter writer = new ArrowStreamWriter(root, null, out)) {
            writer.start();
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
                writer.writeBatch();
            }
            writer.end();
        }
    }

    private static void read(Socket socket) throws Exception {
        long count = 0;
        long sum = 0;
        Object last = null;
        try (RootAllocator allocator = new RootAllocator();
                InputStream in = socket.getInputStream();
                ArrowStreamReader reader = new ArrowStreamReader(in, allocator)) {
            VectorSchemaRoot root = reader.getVectorSchemaRoot();
            while (reader.loadNextBatch()) {
                BigIntVector n = (BigIntVector) root.getVector("n");
                for (int row = 0; row < root.getRowCount(); row++) {
                    sum += n.get(row);
                    last = root.getVector("text").getObject(row);
                }
                count += root.getRowCount();
            }
        }
        System.out.println(count + " " + sum + " " + last);
    }
}

// Flink SQL as one of the systems of the ingest benchmark: a local environment that stays up.
//
// Reads lines "TOPIC TABLE" from a named pipe. For each it runs one streaming INSERT from the
// topic's beginning to its present end, waits for its end, and answers "done TABLE". The catalog,
// the broker and the number of slots come as arguments. Ends with its input.

import java.io.BufferedReader;
import java.io.FileReader;
import java.nio.charset.StandardCharsets;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

public final class IngestJob {
    private static final String COLUMNS = "id BIGINT, customer STRING, amount DOUBLE, kind STRING";

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        String warehouse = arguments[1];
        String uri = arguments[2];
        String parallelism = arguments[3];
        String checkpointMs = arguments[4];

        Configuration conf = new Configuration();
        conf.setString("parallelism.default", parallelism);
        conf.setString("execution.checkpointing.interval", checkpointMs + " ms");
        // With the older sink rows were missing after the end of a bounded topic.
        conf.setString("table.exec.iceberg.use-v2-sink", "true");
        conf.setString("rest.bind-address", "127.0.0.1");
        conf.setString("rest.address", "127.0.0.1");
        conf.setString("rest.bind-port", "0");
        conf.setString("taskmanager.numberOfTaskSlots", parallelism);
        TableEnvironment tables = TableEnvironment.create(
                EnvironmentSettings.newInstance()
                        .inStreamingMode()
                        .withConfiguration(conf)
                        .build());
        tables.executeSql(
                "CREATE CATALOG lake WITH ('type'='iceberg',"
                        + " 'catalog-impl'='org.apache.iceberg.jdbc.JdbcCatalog',"
                        + " 'jdbc.schema-version'='V1', 'jdbc.busy_timeout'='30000',"
                        + " 'cache-enabled'='false',"
                        + " 'uri'='" + uri + "', 'warehouse'='" + warehouse + "')");
        System.out.println("ready");
        BufferedReader asked =
                new BufferedReader(new FileReader(arguments[5], StandardCharsets.UTF_8));
        int number = 0;
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            String[] words = line.trim().split(" ");
            String source = "source_" + number++;
            tables.executeSql(
                    "CREATE TEMPORARY TABLE " + source + " (" + COLUMNS + ") WITH ("
                            + " 'connector'='kafka', 'topic'='" + words[0] + "',"
                            + " 'properties.bootstrap.servers'='" + servers + "',"
                            + " 'properties.group.id'='bench-" + source + "',"
                            + " 'scan.startup.mode'='earliest-offset',"
                            + " 'scan.bounded.mode'='latest-offset', 'format'='json')");
            tables.executeSql("INSERT INTO lake." + words[1] + " SELECT * FROM " + source).await();
            System.out.println("done " + words[1]);
        }
    }
}

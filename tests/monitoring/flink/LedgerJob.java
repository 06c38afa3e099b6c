import java.util.Properties;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.core.fs.Path;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;
import org.apache.flink.util.Collector;

/**
 * Counts numbers by key in keyed state, and writes each one exactly once, as a line "number key count version", to
 * files below the second argument. The first argument is the directory of switches, see CountJob.java.
 *
 * The jar's resource "ledger.properties" has the version, and the uid of the operator with the state. So one class
 * serves as several versions of the program.
 */
public class LedgerJob {
    public static void main(String[] arguments) throws Exception {
        String switches = arguments[0];
        Properties program = new Properties();
        program.load(LedgerJob.class.getResourceAsStream("/ledger.properties"));
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment
                .fromSource(
                        new NumberSequenceSource(0L, Long.MAX_VALUE - 1L),
                        WatermarkStrategy.noWatermarks(),
                        "numbers",
                        (TypeInformation) Types.LONG)
                .uid("numbers")
                .map(new CountJob.Throttle(switches))
                .returns((TypeInformation) Types.LONG)
                .uid("throttle")
                .keyBy(new CountJob.ByRemainder(), (TypeInformation) Types.LONG)
                .process(new Ledger(switches, program.getProperty("version")))
                .returns((TypeInformation) Types.STRING)
                .name("ledger")
                .uid(program.getProperty("uid"))
                .sinkTo(files(arguments[1]))
                .uid("files")
                .name("files");
        environment.execute();
    }

    static FileSink files(String directory) {
        return FileSink.forRowFormat(new Path(directory), new SimpleStringEncoder())
                .withBucketAssigner(new BasePathBucketAssigner())
                .withRollingPolicy(OnCheckpointRollingPolicy.build())
                .build();
    }

    public static class Ledger extends KeyedProcessFunction implements CheckpointedFunction {
        private final String switches;
        private final String version;
        private transient ValueState counts;

        public Ledger(String switches, String version) {
            this.switches = switches;
            this.version = version;
        }

        public void initializeState(FunctionInitializationContext context) throws Exception {
            this.counts =
                    context.getKeyedStateStore()
                            .getState(new ValueStateDescriptor("count", (TypeInformation) Types.LONG));
        }

        public void snapshotState(FunctionSnapshotContext context) throws Exception {}

        public void processElement(Object row, KeyedProcessFunction.Context context, Collector out) throws Exception {
            if (CountJob.on(this.switches, "fail")) {
                throw new IllegalStateException("The switch says fail.");
            }
            Object before = this.counts.value();
            Long count = Long.valueOf(before == null ? 1L : ((Long) before).longValue() + 1L);
            this.counts.update(count);
            out.collect(row + " " + context.getCurrentKey() + " " + count + " " + this.version);
        }
    }
}

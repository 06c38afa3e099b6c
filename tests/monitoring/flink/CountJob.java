import java.io.File;
import java.io.IOException;
import java.nio.file.Files;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.typeutils.ValueTypeInfo;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.types.Value;
import org.apache.flink.util.Collector;

/**
 * Counts numbers by key in keyed state. The only argument is a directory. Files in it are switches:
 *
 * "rate"     rows per second of each source subtask (100 without the file; read once a second)
 * "decline"  the asynchronous part of a snapshot fails: the task declines the checkpoint but continues
 * "slow"     the synchronous part of a snapshot waits until the file is removed
 * "fail"     the task fails
 *
 * Janino compiles this class, which therefore has no lambdas and no inferred types.
 */
public class CountJob {
    public static void main(String[] arguments) throws Exception {
        String switches = arguments[0];
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        DataStream numbers =
                environment.fromSource(
                        new NumberSequenceSource(0L, Long.MAX_VALUE - 1L),
                        WatermarkStrategy.noWatermarks(),
                        "numbers",
                        (TypeInformation) Types.LONG);
        numbers.map(new Throttle(switches))
                .returns((TypeInformation) Types.LONG)
                .uid("throttle")
                .keyBy(new ByRemainder(), (TypeInformation) Types.LONG)
                .process(new Count(switches))
                .returns((TypeInformation) Types.LONG)
                .name("count")
                .uid("count")
                .sinkTo(new DiscardingSink())
                .name("nowhere");
        environment.execute();
    }

    static boolean on(String switches, String name) {
        return new File(switches, name).exists();
    }

    public static class Throttle extends RichMapFunction {
        private final String switches;
        private long rate = 100L;
        private long rows;
        private long readAt;

        public Throttle(String switches) {
            this.switches = switches;
        }

        public Object map(Object row) throws Exception {
            long now = System.currentTimeMillis();
            if (now - this.readAt > 1000L) {
                this.readAt = now;
                this.rows = 0L;
                File file = new File(this.switches, "rate");
                this.rate = file.exists() ? Long.parseLong(new String(Files.readAllBytes(file.toPath())).trim()) : 100L;
            }
            this.rows = this.rows + 1L;
            long due = this.readAt + this.rows * 1000L / this.rate;
            if (due > now) {
                Thread.sleep(due - now);
            }
            return row;
        }
    }

    public static class ByRemainder implements KeySelector {
        public Object getKey(Object row) {
            return Long.valueOf(((Long) row).longValue() % 1000L);
        }
    }

    public static class Count extends KeyedProcessFunction implements CheckpointedFunction {
        private final String switches;
        private transient ValueState counts;

        public Count(String switches) {
            this.switches = switches;
        }

        public void initializeState(FunctionInitializationContext context) throws Exception {
            this.counts =
                    context.getKeyedStateStore()
                            .getState(new ValueStateDescriptor("count", (TypeInformation) new ValueTypeInfo(Tally.class)));
        }

        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            while (CountJob.on(this.switches, "slow")) {
                Thread.sleep(20L);
            }
        }

        public void processElement(Object row, KeyedProcessFunction.Context context, Collector out) throws Exception {
            if (CountJob.on(this.switches, "fail")) {
                throw new IllegalStateException("The switch says fail.");
            }
            Tally tally = (Tally) this.counts.value();
            if (tally == null) {
                tally = new Tally();
            }
            tally.switches = this.switches;
            tally.count = tally.count + 1L;
            this.counts.update(tally);
            out.collect(Long.valueOf(tally.count));
        }
    }

    /** A count whose serialization can fail. */
    public static class Tally implements Value {
        public long count;
        public String switches = "";

        public Tally() {}

        public void write(DataOutputView out) throws IOException {
            if (CountJob.on(this.switches, "decline")) {
                throw new IOException("The switch says decline.");
            }
            out.writeLong(this.count);
            out.writeUTF(this.switches);
        }

        public void read(DataInputView in) throws IOException {
            this.count = in.readLong();
            this.switches = in.readUTF();
        }
    }
}

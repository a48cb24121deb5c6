package conformance;

import java.io.PrintStream;
import java.io.StringReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Stream;

/**
 * Runs every check on a namespace of its own, several at a time, and prints one line of JSON for each.
 *
 * <p>SANDBOX_NAMESPACES has a line {@code check=connection string} for each check; a check is a public method of that
 * name. SANDBOX_CONTROL is the URL of faults.
 */
public final class Main {
    private static final List<Class<?>> CHECKS = List.of(
        MessageChecks.class, SettlementChecks.class, SessionChecks.class, TopicChecks.class, ConnectionChecks.class,
        FaultChecks.class, TransactionChecks.class);
    private static final int AT_A_TIME = 8;
    private static final int CHECK_SECONDS = 40;

    private record Check(String name, Future<Void> end) {}

    public static void main(String[] arguments) throws Exception {
        Properties namespaces = new Properties();
        namespaces.load(new StringReader(System.getenv("SANDBOX_NAMESPACES")));
        ExecutorService threads = Executors.newFixedThreadPool(AT_A_TIME);
        List<Check> checks = new ArrayList<>();
        for (String name : namespaces.stringPropertyNames()) {
            checks.add(new Check(name, threads.submit(() -> run(name, namespaces.getProperty(name)))));
        }
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (Check check : checks) {
            out.println(verdict(check));
        }
        System.exit(0);
    }

    private static Void run(String name, String connectionString) throws Exception {
        Method method = CHECKS.stream().flatMap(type -> Stream.of(type.getDeclaredMethods()))
            .filter(each -> each.getName().equals(name)).findFirst().orElseThrow();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try (Namespace namespace = new Namespace(name, connectionString)) {
            Callable<Object> call = () -> method.invoke(null, namespace);
            thread.submit(call).get(CHECK_SECONDS, TimeUnit.SECONDS);
        } finally {
            thread.shutdownNow();
        }
        return null;
    }

    private static String verdict(Check check) throws InterruptedException {
        String error = null;
        try {
            check.end.get();
        } catch (ExecutionException failure) {
            error = describe(failure);
        }
        return "{\"check\": %s, \"passed\": %s, \"error\": %s}"
            .formatted(Json.of(check.name), error == null, Json.of(error));
    }

    private static String describe(Throwable failure) {
        Throwable cause = failure;
        while ((cause instanceof ExecutionException || cause instanceof InvocationTargetException)
            && cause.getCause() != null) {
            cause = cause.getCause();
        }
        if (cause instanceof TimeoutException) {
            return "not done within " + CHECK_SECONDS + " s";
        }
        StackTraceElement place = Stream.of(cause.getStackTrace())
            .filter(each -> each.getClassName().endsWith("Checks")).findFirst().orElse(null);
        return cause + (place == null ? "" : " at " + place.getFileName() + ":" + place.getLineNumber());
    }
}

package conformance;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import java.util.Objects;

/** Assertions, in the words of the checks. */
final class Expect {
    interface Action {
        void run() throws Exception;
    }

    static void equal(Object expected, Object actual) {
        if (!Objects.deepEquals(expected, actual)) {
            throw new AssertionError("expected " + expected + ", got " + actual);
        }
    }

    static void isTrue(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    /** Fails unless the service's refusal, whatever the client wraps it in, has this condition. */
    static void refused(AmqpErrorCondition condition, Action action) {
        RuntimeException error = fails(RuntimeException.class, action);
        AmqpException refusal = refusalIn(error);
        isTrue(refusal != null && refusal.getErrorCondition() == condition,
            "expected " + condition + ", got " + (refusal == null ? error : refusal));
    }

    /** The service's refusal that an error wraps; null: the client gave up by itself. */
    static AmqpException refusalIn(Throwable error) {
        Throwable cause = error;
        while (cause != null && !(cause instanceof AmqpException)) {
            cause = cause.getCause();
        }
        return (AmqpException) cause;
    }

    static <T extends Throwable> T fails(Class<T> type, Action action) {
        try {
            action.run();
        } catch (Throwable error) {
            if (type.isInstance(error)) {
                return type.cast(error);
            }
            throw new AssertionError("expected " + type.getSimpleName() + ", got " + error, error);
        }
        throw new AssertionError("expected " + type.getSimpleName() + ", but it succeeded");
    }
}

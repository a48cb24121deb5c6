package conformance;

import java.util.Map;
import java.util.stream.Collectors;

/** Writes the little JSON that verdicts and faults need. */
final class Json {
    static String of(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(each -> of(each.getKey()) + ": " + of(each.getValue()))
                .collect(Collectors.joining(", ", "{", "}"));
        }
        return value instanceof String text ? quoted(text) : String.valueOf(value);
    }

    private static String quoted(String text) {
        return text.chars()
            .mapToObj(each -> each < ' ' || each == '"' || each == '\\'
                ? "\\u%04x".formatted(each) : String.valueOf((char) each))
            .collect(Collectors.joining("", "\"", "\""));
    }
}

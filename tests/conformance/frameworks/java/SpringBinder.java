import java.util.Map;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.ConfigurableApplicationContext;

/** A sender on the binder of Spring Cloud Stream, from Spring Cloud Azure. */
@EnableAutoConfiguration
public class SpringBinder {
    public static void main(String[] args) throws Exception {
        String producer = "spring.cloud.stream.servicebus.bindings.out.producer.";
        ConfigurableApplicationContext context = new SpringApplicationBuilder(SpringBinder.class)
            .web(WebApplicationType.NONE)
            .properties(Map.of(
                "spring.cloud.azure.servicebus.connection-string", System.getenv("SENDER_CONNECTION_STRING"),
                "spring.cloud.stream.bindings.out.destination", args[0],
                producer + "entity-type", "queue",
                producer + "sync", "true", // else a send is not waited for
                producer + "send-timeout", "60s")) // a send at the gateway may need 25 s
            .run();
        StreamBridge bridge = context.getBean(StreamBridge.class);
        Lanes.run(args, id -> bridge.send("out", id));
    }
}

import java.util.Map;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.jms.core.JmsTemplate;

/** A sender on the starter for JMS, from Spring Cloud Azure. */
@EnableAutoConfiguration
public class SpringJms {
    public static void main(String[] args) throws Exception {
        ConfigurableApplicationContext context = new SpringApplicationBuilder(SpringJms.class)
            .web(WebApplicationType.NONE)
            .properties(Map.of(
                "spring.jms.servicebus.connection-string", System.getenv("SENDER_CONNECTION_STRING"),
                "spring.jms.servicebus.pricing-tier", "standard"))
            .run();
        JmsTemplate template = context.getBean(JmsTemplate.class);
        Lanes.run(args, id -> template.convertAndSend(args[0], id));
    }
}

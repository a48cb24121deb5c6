import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.jms.core.JmsTemplate;

/** A sender on Spring Cloud Azure's starter for JMS. */
@SpringBootApplication
public class Sender {
    public static void main(String[] args) throws Exception {
        SpringApplication application = new SpringApplication(Sender.class);
        application.setWebApplicationType(WebApplicationType.NONE);
        application.setDefaultProperties(Map.of(
            "spring.jms.servicebus.connection-string", System.getenv("SENDER_CONNECTION_STRING"),
            "spring.jms.servicebus.pricing-tier", "standard",
            "spring.main.banner-mode", "off",
            "logging.level.root", "OFF"));
        JmsTemplate template = application.run().getBean(JmsTemplate.class);
        Lanes.run(args, id -> template.convertAndSend(args[0], id));
    }
}

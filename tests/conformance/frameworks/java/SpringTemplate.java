import com.azure.spring.cloud.core.provider.connectionstring.StaticConnectionStringProvider;
import com.azure.spring.cloud.service.servicebus.properties.ServiceBusEntityType;
import com.azure.spring.messaging.servicebus.core.DefaultServiceBusNamespaceProducerFactory;
import com.azure.spring.messaging.servicebus.core.ServiceBusTemplate;
import com.azure.spring.messaging.servicebus.core.properties.NamespaceProperties;
import org.springframework.messaging.support.MessageBuilder;

/** A sender on the template of Spring Cloud Azure. */
public final class SpringTemplate {
    public static void main(String[] args) throws Exception {
        NamespaceProperties properties = new NamespaceProperties();
        properties.setConnectionString(System.getenv("SENDER_CONNECTION_STRING"));
        properties.setEntityType(ServiceBusEntityType.QUEUE);
        ServiceBusTemplate template = new ServiceBusTemplate(new DefaultServiceBusNamespaceProducerFactory(properties));
        template.setDefaultEntityType(ServiceBusEntityType.QUEUE);
        Lanes.run(args, id -> template.send(args[0], MessageBuilder.withPayload(id).build()));
    }
}

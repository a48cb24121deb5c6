import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;

/** Java's administration client: even lanes read the entity, odd ones change the queue of its own name. */
public final class AdminJava {
    public static void main(String[] args) throws Exception {
        ServiceBusAdministrationClient admin = new ServiceBusAdministrationClientBuilder()
            .connectionString(System.getenv("SENDER_CONNECTION_STRING")).buildClient();
        Lanes.run(args, id -> {
            if (id.matches(".*[02468]-\\d+")) {
                admin.getQueueRuntimeProperties(args[0]).getTotalMessageCount();
            } else {
                admin.updateQueue(admin.getQueue(args[1]).setUserMetadata(id));
            }
        });
    }
}

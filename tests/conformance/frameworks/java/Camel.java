import org.apache.camel.ProducerTemplate;
import org.apache.camel.impl.DefaultCamelContext;

/** A sender on Apache Camel's component azure-servicebus. */
public final class Camel {
    public static void main(String[] args) throws Exception {
        DefaultCamelContext context = new DefaultCamelContext();
        context.start();
        ProducerTemplate template = context.createProducerTemplate();
        String string = System.getenv("SENDER_CONNECTION_STRING");
        String uri = "azure-servicebus:" + args[0] + "?connectionString=RAW(" + string + ")";
        Lanes.run(args, id -> template.sendBody(uri, id));
    }
}

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;

/** What Qpid JMS sees that logs in by the name of a key and the key: JmsChecks URL NAME KEY. One line of JSON a check. */
public class JmsChecks {
  private static final long PATIENCE = 15_000;
  private static String url, name, key;

  interface Check {
    void run(Session session) throws Exception;
  }

  public static void main(String[] given) throws Exception {
    url = given[0];
    name = given[1];
    key = given[2];
    check("a text with its properties is sent, received and acknowledged", JmsChecks::sendText);
    check("bytes, maps, streams and objects come back as they were sent", JmsChecks::sendKinds);
    check("a recovered message comes again and has been counted", JmsChecks::recover);
    check("an expired message is not received", JmsChecks::expire);
    check("what is sent to a topic is received from its subscription", JmsChecks::subscribe);
    check("an anonymous producer sends to a queue", JmsChecks::sendAnonymously);
    check("a missing queue is an invalid destination", JmsChecks::missQueue);
    check("a transacted session sends and receives at its commit", JmsChecks::commit);
    check("a rollback leaves nothing that was sent, and the lock of what was received", JmsChecks::rollBack);
    check("a wrong password is refused", session -> refuseLogin(name, "wrong"));
    check("an unknown name is refused", session -> refuseLogin("nobody", key));
    System.exit(0);
  }

  private static void check(String what, Check check) {
    String error = null;
    try (Connection connection = new JmsConnectionFactory(name, key, url).createConnection()) {
      connection.start();
      check.run(connection.createSession(false, Session.CLIENT_ACKNOWLEDGE));
    } catch (Throwable failure) {
      error = failure.getClass().getSimpleName() + ": " + failure.getMessage();
    }
    String text = error == null ? "null" : '"' + error.replaceAll("[\"\\\\\\p{Cntrl}]", "'") + '"';
    System.out.printf("{\"check\": \"%s\", \"passed\": %b, \"error\": %s}%n", what, error == null, text);
  }

  private static void expect(boolean holds, String otherwise) {
    if (!holds) {
      throw new AssertionError(otherwise);
    }
  }

  private static Message receive(MessageConsumer consumer) throws JMSException {
    Message message = consumer.receive(PATIENCE);
    expect(message != null, "no message came");
    return message;
  }

  private static void sendText(Session session) throws Exception {
    TextMessage sent = session.createTextMessage("hello");
    sent.setStringProperty("text", "12");
    sent.setIntProperty("number", 7);
    sent.setJMSCorrelationID("c1");
    sent.setJMSType("subject");
    session.createProducer(session.createQueue("orders")).send(sent);
    TextMessage got = (TextMessage) receive(session.createConsumer(session.createQueue("orders")));
    expect(got.getText().equals("hello"), got.getText());
    expect(got.getIntProperty("number") == 7 && got.getStringProperty("text").equals("12"), "other properties");
    expect(got.getJMSCorrelationID().equals("c1") && got.getJMSType().equals("subject"), "other headers");
    expect(got.getIntProperty("JMSXDeliveryCount") == 1, "delivered more than once");
    got.acknowledge();
  }

  private static void sendKinds(Session session) throws Exception {
    MessageProducer producer = session.createProducer(session.createQueue("orders"));
    BytesMessage bytes = session.createBytesMessage();
    bytes.writeBytes(new byte[] {1, 2, 3});
    MapMessage map = session.createMapMessage();
    map.setInt("a", 1);
    StreamMessage stream = session.createStreamMessage();
    stream.writeInt(1);
    for (Message each : List.of(bytes, map, stream, session.createObjectMessage(new ArrayList<>(List.of("x"))))) {
      producer.send(each);
    }
    MessageConsumer consumer = session.createConsumer(session.createQueue("orders"));
    for (String kind : List.of("Bytes", "Map", "Stream", "Object")) {
      Message got = receive(consumer);
      expect(got.getClass().getSimpleName().equals("Jms" + kind + "Message"), got.getClass().getSimpleName());
      got.acknowledge();
    }
  }

  private static void recover(Session session) throws Exception {
    session.createProducer(session.createQueue("orders")).send(session.createTextMessage("again"));
    MessageConsumer consumer = session.createConsumer(session.createQueue("orders"));
    receive(consumer);
    session.recover();
    Message again = receive(consumer);
    expect(again.getJMSRedelivered() && again.getIntProperty("JMSXDeliveryCount") == 2, "not counted");
    again.acknowledge();
  }

  private static void expire(Session session) throws Exception {
    MessageProducer producer = session.createProducer(session.createQueue("orders"));
    producer.setTimeToLive(1);
    producer.send(session.createTextMessage("short"));
    producer.setTimeToLive(0);
    Thread.sleep(50);
    producer.send(session.createTextMessage("long"));
    TextMessage got = (TextMessage) receive(session.createConsumer(session.createQueue("orders")));
    expect(got.getText().equals("long"), got.getText());
    got.acknowledge();
  }

  private static void subscribe(Session session) throws Exception {
    session.createProducer(session.createTopic("audit")).send(session.createTextMessage("seen"));
    receive(session.createConsumer(session.createQueue("audit/Subscriptions/all"))).acknowledge();
  }

  private static void sendAnonymously(Session session) throws Exception {
    session.createProducer(null).send(session.createQueue("orders"), session.createTextMessage("anonymous"));
    receive(session.createConsumer(session.createQueue("orders"))).acknowledge();
  }

  private static void missQueue(Session session) throws Exception {
    try {
      session.createConsumer(session.createQueue("nowhere"));
    } catch (InvalidDestinationException expected) {
      return;
    }
    throw new AssertionError("it was found");
  }

  private static void commit(Session session) throws Exception {
    Queue orders = session.createQueue("orders");
    session.createProducer(orders).send(session.createTextMessage("before"));
    try (Connection connection = new JmsConnectionFactory(name, key, url).createConnection()) {
      connection.start();
      Session transacted = connection.createSession(true, Session.SESSION_TRANSACTED);
      MessageConsumer consumer = transacted.createConsumer(orders);
      receive(consumer);
      MessageProducer producer = transacted.createProducer(orders);
      producer.send(transacted.createTextMessage("one"));
      producer.send(transacted.createTextMessage("two"));
      MessageConsumer outside = session.createConsumer(orders);
      expect(outside.receive(500) == null, "a message was seen before the commit");
      outside.close();
      transacted.commit();
      for (String text : List.of("one", "two")) {
        TextMessage message = (TextMessage) receive(consumer);
        expect(message.getText().equals(text), message.getText());
      }
      transacted.commit();
    }
    expect(session.createConsumer(orders).receive(500) == null, "a message is left after the commit");
  }

  private static void rollBack(Session session) throws Exception {
    Queue orders = session.createQueue("orders");
    session.createProducer(orders).send(session.createTextMessage("stays"));
    try (Connection connection = new JmsConnectionFactory(name, key, url).createConnection()) {
      connection.start();
      Session transacted = connection.createSession(true, Session.SESSION_TRANSACTED);
      receive(transacted.createConsumer(orders));
      transacted.createProducer(orders).send(transacted.createTextMessage("never"));
      transacted.rollback();
    }
    MessageConsumer outside = session.createConsumer(orders);
    expect(outside.receive(500) == null, "what was rolled back is there");
  }

  private static void refuseLogin(String user, String password) throws Exception {
    try (Connection connection = new JmsConnectionFactory(user, password, url).createConnection()) {
      connection.start();
    } catch (JMSSecurityException expected) {
      return;
    }
    throw new AssertionError("it was let in");
  }
}

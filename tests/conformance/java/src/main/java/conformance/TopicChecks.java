package conformance;

import static conformance.Namespace.bodies;
import static conformance.Namespace.receive;
import static conformance.Namespace.receiveOne;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;

/** Topics, subscriptions and their rules. */
final class TopicChecks {
    static void subscriptionReceivesACopy(Namespace at) {
        at.topicSender().sendMessage(new ServiceBusMessage("seen"));
        ServiceBusReceiverClient receiver = at.subscriptionReceiver();
        ServiceBusReceivedMessage message = receiveOne(receiver);
        Expect.equal("seen", message.getBody().toString());
        receiver.complete(message);
    }

    static void subscriptionHasDeadLetters(Namespace at) {
        at.topicSender().sendMessage(new ServiceBusMessage("bad"));
        ServiceBusReceiverClient receiver = at.subscriptionReceiver();
        receiver.deadLetter(receiveOne(receiver));
        ServiceBusReceiverClient deadLetters = at.closing(at.builder().receiver().topicName("audit")
            .subscriptionName("all").subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
        Expect.equal("bad", receiveOne(deadLetters).getBody().toString());
    }

    static void schedulesOnATopic(Namespace at) {
        long number = at.topicSender().scheduleMessage(new ServiceBusMessage("later"),
            OffsetDateTime.now().plusHours(1));
        at.topicSender().cancelScheduledMessage(number);
        Expect.equal(List.of(), bodies(at.subscriptionReceiver().peekMessages(5)));
    }

    static void listsTheDefaultRule(Namespace at) {
        List<RuleProperties> rules = rules(at).listRules().stream().toList();
        Expect.equal(List.of("$Default"), rules.stream().map(RuleProperties::getName).toList());
        Expect.isTrue(rules.get(0).getFilter() instanceof TrueRuleFilter, "it is " + rules.get(0).getFilter());
    }

    static void sqlRuleFilters(Namespace at) {
        expectFiltered(at, new SqlRuleFilter("region = 'west' AND floor > 2"));
    }

    static void correlationRuleFilters(Namespace at) {
        CorrelationRuleFilter filter = new CorrelationRuleFilter().setLabel("wanted");
        filter.getProperties().putAll(Map.of("region", "west", "floor", 3));
        expectFiltered(at, filter);
    }

    static void falseRuleFiltersAll(Namespace at) {
        ServiceBusRuleManagerClient rules = replaceDefault(at, new CreateRuleOptions(new FalseRuleFilter()));
        at.topicSender().sendMessage(new ServiceBusMessage("none"));
        Expect.equal(List.of(), bodies(at.subscriptionReceiver().peekMessages(5)));
        Expect.isTrue(rules.listRules().stream().findFirst().get().getFilter() instanceof FalseRuleFilter, "not false");
        rules.createRule("every", new CreateRuleOptions(new TrueRuleFilter()));
        at.topicSender().sendMessage(new ServiceBusMessage("one"));
        Expect.equal("one", receiveOne(at.subscriptionReceiver()).getBody().toString());
    }

    static void ruleActionChangesTheMessage(Namespace at) {
        replaceDefault(at, new CreateRuleOptions(new SqlRuleFilter("1=1"))
            .setAction(new SqlRuleAction("SET floor = 7; REMOVE region")));
        at.topicSender().sendMessage(message("west", 3));
        Map<String, Object> properties = receiveOne(at.subscriptionReceiver()).getApplicationProperties();
        Expect.equal(7L, ((Number) properties.get("floor")).longValue());
        Expect.isTrue(!properties.containsKey("region"), "region was not removed");
    }

    static void listsRulesAsCreated(Namespace at) {
        ServiceBusRuleManagerClient rules = rules(at);
        rules.deleteRule("$Default");
        rules.createRule("sql", new CreateRuleOptions(new SqlRuleFilter("size > 10"))
            .setAction(new SqlRuleAction("SET large = TRUE")));
        rules.createRule("where", new CreateRuleOptions(new CorrelationRuleFilter("c1").setTo("west")));
        List<RuleProperties> listed = rules.listRules().stream().toList();
        Expect.equal(List.of("sql", "where"), listed.stream().map(RuleProperties::getName).toList());
        Expect.equal("size > 10", ((SqlRuleFilter) listed.get(0).getFilter()).getSqlExpression());
        Expect.equal("SET large = TRUE", ((SqlRuleAction) listed.get(0).getAction()).getSqlExpression());
        Expect.equal(new CorrelationRuleFilter("c1").setTo("west"), listed.get(1).getFilter());
    }

    static void refusesRulesThatAreWrong(Namespace at) {
        ServiceBusRuleManagerClient rules = rules(at);
        CreateRuleOptions every = new CreateRuleOptions(new TrueRuleFilter());
        Expect.refused(AmqpErrorCondition.ENTITY_ALREADY_EXISTS,
            () -> rules.createRule("$Default", every));
        Expect.refused(AmqpErrorCondition.NOT_FOUND, () -> rules.deleteRule("nowhere"));
        Expect.fails(RuntimeException.class,
            () -> rules.createRule("wrong", new CreateRuleOptions(new SqlRuleFilter("size >"))));
    }

    private static void expectFiltered(Namespace at, RuleFilter filter) {
        replaceDefault(at, new CreateRuleOptions(filter));
        at.topicSender().sendMessages(List.of(message("east", 3), message("west", 1), message("west", 3)));
        List<ServiceBusReceivedMessage> messages = receive(at.subscriptionReceiver(), 1);
        Expect.equal(List.of("west 3"), bodies(messages));
        Expect.equal(1, bodies(at.subscriptionReceiver().peekMessages(5)).size());
    }

    private static ServiceBusMessage message(String region, int floor) {
        ServiceBusMessage message = new ServiceBusMessage(region + " " + floor).setSubject("wanted");
        message.getApplicationProperties().putAll(Map.of("region", region, "floor", floor));
        return message;
    }

    private static ServiceBusRuleManagerClient replaceDefault(Namespace at, CreateRuleOptions options) {
        ServiceBusRuleManagerClient rules = rules(at);
        rules.deleteRule("$Default");
        rules.createRule("only", options);
        return rules;
    }

    private static ServiceBusRuleManagerClient rules(Namespace at) {
        return at.closing(at.builder().ruleManager().topicName("audit").subscriptionName("all").buildClient());
    }
}

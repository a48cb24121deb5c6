"""A cross-check with the official Go SDK of Service Bus, azservicebus, which stands on go-amqp."""

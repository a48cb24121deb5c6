"""What is only read and never changes a message: depths, peeks, unused queues, readiness, views for the snapshot."""

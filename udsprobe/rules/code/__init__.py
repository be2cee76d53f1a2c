"""Which code a cause is in, where stacks were taken."""

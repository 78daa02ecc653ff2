"""The engine without a policy: the bytes that the mathematics needs."""

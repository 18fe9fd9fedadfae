//! One shard of a device: the protocol without clock, thread or socket.

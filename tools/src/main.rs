//! The `roce` command.

fn main() {}

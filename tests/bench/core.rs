//! Benchmarks of the core: events per second, and time per event as the number of volumes grows.

fn main() {}

//! Tests of pure behaviour: no server, no network, no clock.

mod checkers;
mod house;
mod imports;
mod source;

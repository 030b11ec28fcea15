//! Tests of pure behaviour: no server, no network, no clock of ours.
// The tests of form read the source; the ban on files is for the crate.
#![allow(clippy::disallowed_methods)]

mod checkers;
mod documented;
mod house;
mod imports;
mod placed;
mod planner;
mod restart;
mod sabotage;
mod scenarios;
mod simulate;
mod source;

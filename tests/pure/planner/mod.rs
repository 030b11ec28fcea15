//! The core at a desk: cases from the field, the contract, and the table of conflicts, each as a short script.

mod desk;
mod hands;
mod short;

mod attach;
mod attacher;
mod conflicts;
mod contract;
mod crash;
mod device;
mod guarded;
mod initialized;
mod input;
mod leaks;
mod limits;
mod moves;
mod names;
mod placement;
mod rules;
mod scale;
mod stale;
mod stuck;
mod sweep;
mod unsafe_forced;
mod unsafe_released;

//! Tests against real servers: kube-apiserver and etcd, built as Go tools (see [`tools`]), attachd's own binary, and
//! its sandbox in EC2's place.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the bans keep the core pure; tests wait and read files"
)]

mod answers;
mod apiserver;
mod calls;
mod leash;
mod rights;
mod tools;
mod watches;

//! Tests against real servers: kube-apiserver and etcd, built as Go tools (see [`tools`]), attachd's own binary, and
//! its sandbox in EC2's place.

mod apiserver;
mod leash;
mod tools;

mod rights;

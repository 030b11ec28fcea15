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
mod ec2_adapter_moto;
mod ec2_adapter_sandbox;
mod leash;
mod local_ec2;
mod python;
mod rights;
mod sandbox_boto3;
mod tools;
mod watches;

//! Tests against real servers: kube-apiserver and etcd, built as Go tools (see [`tools`]), attachd's own binary, and
//! its sandbox in EC2's place.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the bans keep the core pure; tests wait and read files"
)]

mod answers;
mod apiserver;
mod beside;
mod calls;
mod controller_manager;
mod ec2;
mod ec2_adapter_moto;
mod ec2_adapter_sandbox;
mod failover;
mod figures;
mod fixture;
mod kill;
mod kubelet;
mod leash;
mod local_ec2;
mod moves;
mod past;
mod python;
mod quiet;
mod restart;
mod rights;
mod sandbox_boto3;
mod shutdown;
mod silent_detach;
mod tools;
mod watches;
mod world;

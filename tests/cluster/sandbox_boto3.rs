//! The sandbox speaks EC2's protocol: AWS's own Python client reads its answers (`boto3_check.py`).

use std::process::{Command, Stdio};

use attachd::sandbox::SandboxOptions;
use attachd::sim::ec2::Ec2Options;

use crate::local_ec2::start_sandbox;
use crate::python;

#[tokio::test(flavor = "multi_thread")]
async fn boto3_sets_up_a_world_and_moves_volumes_in_it() {
    let ec2 = Ec2Options::default().faster(20.0);
    let (_sandbox, address) = start_sandbox(SandboxOptions { ec2, ..SandboxOptions::default() }).await;
    let check = move || {
        Command::new(python::binaries().join("python"))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/boto3_check.py"))
            .arg(format!("http://{address}"))
            .stdin(Stdio::null())
            .output()
    };
    let said = tokio::task::spawn_blocking(check).await.expect("the check's thread").expect("run the check");
    let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success() && text.contains("every check passed"), "{text}");
}

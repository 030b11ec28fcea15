//! A real kube-controller-manager beside attachd: its attach/detach controller, the node lifecycle controller and pod
//! garbage collection, nothing else.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::apiserver::{ApiServer, User};
use crate::leash::Leash;
use crate::tools::tools;

const CONTROLLERS: &str =
    "persistentvolume-attach-detach-controller,node-lifecycle-controller,pod-garbage-collector-controller";

/// Starts it; it ends when the leash is dropped. `sync_period` is how often its attach/detach controller compares what it
/// believes attached with the VolumeAttachments there are (its default: a minute).
pub(crate) fn start(server: &ApiServer, sync_period: Duration) -> Leash {
    let directory = server.directory();
    // It watches this directory for drivers of a kind that is no more, and makes it if need be.
    let drivers = directory.join("flex-volume-drivers");
    fs::create_dir_all(&drivers).expect("create a directory");
    let mut command = Command::new(&tools().kube_controller_manager);
    command.arg("--kubeconfig").arg(server.kubeconfig(User::ControllerManager));
    command.arg(format!("--controllers={CONTROLLERS}"));
    command.arg(format!("--attach-detach-reconcile-sync-period={}ms", sync_period.as_millis()));
    command.arg("--flex-volume-plugin-dir").arg(drivers);
    command.args(["--leader-elect=false", "--secure-port=0", "--v=2"]);
    command.env("NO_PROXY", "127.0.0.1");
    Leash::start("kube-controller-manager", &command, directory.join("kube-controller-manager.log"))
}

//! The real etcd and kube-apiserver: found where `KUBEBUILDER_ASSETS` says, else built once from the versions that
//! `tests/cluster/go.mod` pins.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Kubernetes as go.mod pins it. The linker writes it into the server, which else calls itself v0.0.0.
const KUBERNETES_VERSION: &str = "v1.36.3";
const PACKAGES: [&str; 2] = ["k8s.io/kubernetes/cmd/kube-apiserver", "go.etcd.io/etcd/server/v3"];

/// The servers' binaries.
#[derive(Debug)]
pub(crate) struct Tools {
    /// etcd
    pub(crate) etcd: PathBuf,
    /// kube-apiserver
    pub(crate) kube_apiserver: PathBuf,
}

/// The binaries, built if need be. Panics and says what is missing if they can neither be found nor built.
pub(crate) fn tools() -> &'static Tools {
    static TOOLS: OnceLock<Tools> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let directory = match env::var_os("KUBEBUILDER_ASSETS").filter(|path| !path.is_empty()) {
            Some(path) => PathBuf::from(path),
            None => build(),
        };
        let find = |name: &str| {
            let path = directory.join(name);
            assert!(
                path.is_file(),
                "{} is not there (KUBEBUILDER_ASSETS must hold etcd and kube-apiserver)",
                path.display()
            );
            path
        };
        Tools { etcd: find("etcd"), kube_apiserver: find("kube-apiserver") }
    })
}

/// Builds into `target/test-tools`, once for each content of go.mod; a second test binary at the same time waits.
fn build() -> PathBuf {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent").join("test-tools");
    fs::create_dir_all(&target).unwrap_or_else(|error| panic!("cannot create {}: {error}", target.display()));
    let lock = File::create(target.join("lock")).expect("create target/test-tools/lock");
    lock.lock().expect("lock target/test-tools/lock");

    let pinned = fs::read_to_string(module.join("go.mod")).expect("read tests/cluster/go.mod");
    assert!(pinned.contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}")), "go.mod pins another Kubernetes");
    let stamp = target.join("go.mod.built");
    if fs::read_to_string(&stamp).is_ok_and(|built| built == pinned) {
        return target;
    }

    // Straight to standard error: what a test prints is shown only when it fails, and this takes minutes.
    let _ = writeln!(
        std::io::stderr(),
        "building etcd and kube-apiserver {KUBERNETES_VERSION} into {} (once; about three minutes on two cores)",
        target.display()
    );
    let version = KUBERNETES_VERSION.trim_start_matches('v');
    let (major, rest) = version.split_once('.').expect("a version has a minor");
    let minor = rest.split('.').next().unwrap_or(rest);
    let name = "k8s.io/component-base/version.git";
    let flags = format!("-s -w -X {name}Version={KUBERNETES_VERSION} -X {name}Major={major} -X {name}Minor={minor}");
    let mut go = Command::new("go");
    go.arg("build").arg("-C").arg(&module).args([OsStr::new("-o"), target.as_os_str()]);
    go.args(["-buildvcs=false", "-ldflags", &flags]).args(PACKAGES);
    let status = go.status().unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!(
            "the tests in tests/cluster need a real kube-apiserver and etcd. Go (1.26 or newer, https://go.dev/dl) \
             builds them, but there is no `go` on the PATH. Install it, or let KUBEBUILDER_ASSETS name a directory \
             that holds `etcd` and `kube-apiserver`. Tests without servers: cargo test --no-default-features"
        ),
        _ => panic!("cannot run go: {error}"),
    });
    assert!(status.success(), "go build of {PACKAGES:?} failed ({status}); its output is above");
    // The go command names a binary after the last path element that is not a version.
    fs::rename(target.join("server"), target.join("etcd")).expect("name etcd");
    fs::write(&stamp, pinned).expect("write target/test-tools/go.mod.built");
    target
}

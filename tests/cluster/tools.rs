//! The real etcd, kube-apiserver and kube-controller-manager: found where `KUBEBUILDER_ASSETS` says, else built once from
//! the versions that `tests/cluster/go.mod` pins.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Kubernetes as go.mod pins it. The linker writes it into the servers, which else call themselves v0.0.0.
const KUBERNETES_VERSION: &str = "v1.36.3";
/// What the go command builds, and the name of the binary.
const SERVERS: [(&str, &str); 3] = [
    ("go.etcd.io/etcd/server/v3", "etcd"),
    ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
    ("k8s.io/kubernetes/cmd/kube-controller-manager", "kube-controller-manager"),
];

/// The servers' binaries.
#[derive(Debug)]
pub(crate) struct Tools {
    /// etcd
    pub(crate) etcd: PathBuf,
    /// kube-apiserver
    pub(crate) kube_apiserver: PathBuf,
    /// kube-controller-manager
    pub(crate) kube_controller_manager: PathBuf,
}

/// The binaries. Those that are not in `KUBEBUILDER_ASSETS` (which by custom holds the first two) are built, all at once
/// and before any server runs, so that no compiler runs beside a measurement. Panics and says what is missing if they
/// can neither be found nor built.
pub(crate) fn tools() -> &'static Tools {
    static TOOLS: OnceLock<Tools> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let assets = env::var_os("KUBEBUILDER_ASSETS").filter(|path| !path.is_empty()).map(PathBuf::from);
        let given = |name: &str| assets.as_ref().map(|directory| directory.join(name)).filter(|path| path.is_file());
        let missing: Vec<_> = SERVERS.into_iter().filter(|(_, name)| given(name).is_none()).collect();
        let built = if missing.is_empty() { PathBuf::new() } else { build(&missing) };
        let find = |name: &str| given(name).unwrap_or_else(|| built.join(name));
        Tools {
            etcd: find("etcd"),
            kube_apiserver: find("kube-apiserver"),
            kube_controller_manager: find("kube-controller-manager"),
        }
    })
}

/// Builds into `target/test-tools`, once for each content of go.mod; a second test binary at the same time waits.
fn build(servers: &[(&str, &str)]) -> PathBuf {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent").join("test-tools");
    fs::create_dir_all(&target).unwrap_or_else(|error| panic!("cannot create {}: {error}", target.display()));
    let lock = File::create(target.join("lock")).expect("create target/test-tools/lock");
    lock.lock().expect("lock target/test-tools/lock");

    let pinned = fs::read_to_string(module.join("go.mod")).expect("read tests/cluster/go.mod");
    assert!(pinned.contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}")), "go.mod pins another Kubernetes");
    let stamp = |name: &str| target.join(format!("{name}.built-from-go.mod"));
    let is_stale = |name: &str| fs::read_to_string(stamp(name)).map_or(true, |built| built != pinned);
    let stale: Vec<_> = servers.iter().filter(|(_, name)| is_stale(name)).collect();
    if stale.is_empty() {
        return target;
    }

    let names: Vec<&str> = stale.iter().map(|(_, name)| *name).collect();
    let packages: Vec<&str> = stale.iter().map(|(package, _)| *package).collect();
    // Straight to standard error: what a test prints is shown only when it fails, and this takes minutes.
    let _ = writeln!(
        std::io::stderr(),
        "building {} of Kubernetes {KUBERNETES_VERSION} into {} (once; about four minutes on two cores)",
        names.join(", "),
        target.display()
    );
    run_go(&module, &target, &packages);
    if names.contains(&"etcd") {
        // The go command names a binary after the last path element that is not a version.
        fs::rename(target.join("server"), target.join("etcd")).expect("name etcd");
    }
    for name in names {
        fs::write(stamp(name), &pinned).expect("write a stamp into target/test-tools");
    }
    target
}

fn run_go(module: &Path, target: &Path, packages: &[&str]) {
    let version = KUBERNETES_VERSION.trim_start_matches('v');
    let (major, rest) = version.split_once('.').expect("a version has a minor");
    let minor = rest.split('.').next().unwrap_or(rest);
    let name = "k8s.io/component-base/version.git";
    let flags = format!("-s -w -X {name}Version={KUBERNETES_VERSION} -X {name}Major={major} -X {name}Minor={minor}");
    let mut go = Command::new("go");
    // With the slash it is a directory for certain, also where one package is built.
    go.arg("build").arg("-C").arg(module).args([OsStr::new("-o"), target.join("").as_os_str()]);
    go.args(["-buildvcs=false", "-ldflags", &flags]).args(packages);
    let status = go.status().unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!(
            "the tests in tests/cluster need a real etcd, kube-apiserver and kube-controller-manager. Go (1.26 or newer, \
             https://go.dev/dl) builds them, but there is no `go` on the PATH. Install it, or let KUBEBUILDER_ASSETS \
             name a directory that holds them. Tests without servers: cargo test --no-default-features"
        ),
        _ => panic!("cannot run go: {error}"),
    });
    assert!(status.success(), "go build of {packages:?} failed ({status}); its output is above");
}

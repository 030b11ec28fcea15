//! Python with boto3 and moto: a client and a server of EC2's API that nobody here wrote.
//!
//! Installed once into `target/test-python`, as `tests/cluster/requirements.txt` pins them.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The directory with `python`, `moto_server` and the rest. Panics and says what is missing if it cannot be made.
pub(crate) fn binaries() -> &'static Path {
    static BINARIES: OnceLock<PathBuf> = OnceLock::new();
    BINARIES.get_or_init(install)
}

fn install() -> PathBuf {
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/requirements.txt");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent");
    let environment = target.join("test-python");
    let lock = File::create(target.join("test-python.lock")).expect("create target/test-python.lock");
    lock.lock().expect("lock target/test-python.lock");

    let pinned = fs::read_to_string(&requirements).expect("read tests/cluster/requirements.txt");
    let stamp = environment.join("requirements.installed");
    let binaries = environment.join("bin");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == pinned) {
        return binaries;
    }

    // Straight to standard error: what a test prints is shown only when it fails.
    let _ = writeln!(std::io::stderr(), "installing boto3 and moto into {} (once)", environment.display());
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment).output();
    let made = made.unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!(
            "the tests of the EC2 side need boto3 and moto, and for them Python 3.10 or newer with its venv module, \
             but there is no `python3` on the PATH. Tests without servers: cargo test --no-default-features"
        ),
        _ => panic!("cannot run python3: {error}"),
    });
    let said = |output: &[u8]| String::from_utf8_lossy(output).into_owned();
    assert!(
        made.status.success(),
        "python3 -m venv failed (on Debian and Ubuntu the module is the package python3-venv):\n{}{}",
        said(&made.stdout),
        said(&made.stderr)
    );
    let mut pip = Command::new(binaries.join("python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&requirements);
    let installed = pip.output().expect("run pip");
    assert!(
        installed.status.success(),
        "pip could not install tests/cluster/requirements.txt (is a package index reachable?):\n{}",
        said(&installed.stderr)
    );
    fs::write(&stamp, pinned).expect("write the stamp of target/test-python");
    binaries
}

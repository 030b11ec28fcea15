//! A real kube-apiserver on a real etcd, started for a test and gone with it.
//!
//! Two users speak to it: the test itself, which may do everything, and attachd under the name of its service account
//! with the rights of `config/deploy/rbac.yaml` and no others; in some tests kube-controller-manager is the third. The
//! audit log tells their requests apart and counts them.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kube::api::{Api, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde::Deserialize;

use crate::leash::Leash;
use crate::tools::tools;

/// Who speaks to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The test, member of `system:masters`.
    Test,
    /// attachd.
    Attachd,
    /// kube-controller-manager, a member of `system:masters` here: its own rights are not the subject.
    ControllerManager,
}

impl User {
    const ALL: [Self; 3] = [Self::Test, Self::Attachd, Self::ControllerManager];

    const fn group(self) -> &'static str {
        match self {
            Self::Test | Self::ControllerManager => "system:masters",
            Self::Attachd => "attachd",
        }
    }

    /// The name in the audit log. attachd's is that of the service account that rbac.yaml binds.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Attachd => "system:serviceaccount:kube-system:attachd",
            Self::ControllerManager => "system:kube-controller-manager",
        }
    }

    const fn token(self) -> &'static str {
        match self {
            Self::Test => "token-of-the-test",
            Self::Attachd => "token-of-attachd",
            Self::ControllerManager => "token-of-the-controller-manager",
        }
    }
}

/// A running API server.
#[derive(Debug)]
pub(crate) struct ApiServer {
    // Stopped in this order: the server before its store.
    kube_apiserver: Leash,
    _etcd: Leash,
    directory: PathBuf,
    url: String,
}

/// The server that adapter tests share; each keeps to names of its own. Tests that run attachd start their own.
pub(crate) fn shared() -> &'static ApiServer {
    static SHARED: OnceLock<ApiServer> = OnceLock::new();
    SHARED.get_or_init(|| ApiServer::start("shared"))
}

impl ApiServer {
    /// Starts etcd and kube-apiserver, waits until they are ready and gives attachd its rights. Everything they write
    /// goes to a directory of their own.
    pub(crate) fn start(label: &str) -> Self {
        let directory = fresh_directory(label);
        let (store_port, port) = (free_port(), free_port());
        let store = format!("http://127.0.0.1:{store_port}");

        let mut command = Command::new(&tools().etcd);
        command.arg("--data-dir").arg(directory.join("etcd"));
        command.args(["--listen-client-urls", &store, "--advertise-client-urls", &store]);
        // Nothing here survives a crash, so nothing waits for the disk.
        command.args(["--listen-peer-urls", "http://127.0.0.1:0", "--unsafe-no-fsync", "--log-level", "warn"]);
        let mut etcd = Leash::start("etcd", &command, directory.join("etcd.log"));
        etcd.wait_until(Duration::from_secs(30), "listens", || TcpStream::connect(("127.0.0.1", store_port)).is_ok());

        let mut kube_apiserver = start_kube_apiserver(&directory, &store, port);
        let certificate = directory.join("certificates/apiserver.crt");
        // The first start of a cold binary on a busy machine takes far longer than the usual three seconds.
        kube_apiserver.wait_until(Duration::from_secs(120), "listens", || {
            certificate.is_file() && TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        let mut server = Self { kube_apiserver, _etcd: etcd, directory, url: format!("https://127.0.0.1:{port}") };
        for user in User::ALL {
            server.write_kubeconfig(user, &certificate);
        }
        server.wait_until_ready_and_apply_rbac();
        server
    }

    /// Where it and its companions write; a place for the files of the test as well.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The kubeconfig file of a user (`kubectl --kubeconfig` takes it too).
    pub(crate) fn kubeconfig(&self, user: User) -> PathBuf {
        self.directory.join(match user {
            User::Test => "test.kubeconfig",
            User::Attachd => "attachd.kubeconfig",
            User::ControllerManager => "kube-controller-manager.kubeconfig",
        })
    }

    /// A client for a user. A client belongs to the runtime of the test that asked for it.
    pub(crate) async fn client(&self, user: User) -> Client {
        client_of(&self.kubeconfig(user)).await
    }

    /// Every finished request so far, oldest first: writes of everybody, reads of attachd.
    pub(crate) fn audit(&self) -> Vec<AuditEntry> {
        let text = fs::read_to_string(self.directory.join("audit.log")).expect("read the audit log");
        text.lines().map(|line| serde_json::from_str(line).expect("a line of the audit log")).collect()
    }

    /// The audit log from now on.
    pub(crate) fn audit_from_now(&self) -> AuditTail {
        let mut file = File::open(self.directory.join("audit.log")).expect("open the audit log");
        file.seek(SeekFrom::End(0)).expect("go to its end");
        AuditTail { file, rest: String::new() }
    }

    fn write_kubeconfig(&self, user: User, certificate: &Path) {
        let (url, token) = (&self.url, user.token());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: \"{url}\", certificate-authority: \"{}\"}}}}]\n\
             users: [{{name: test, user: {{token: {token}}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n",
            certificate.display()
        );
        fs::write(self.kubeconfig(user), text).expect("write a kubeconfig");
    }

    /// On a thread of its own: the caller may or may not be inside a runtime already.
    fn wait_until_ready_and_apply_rbac(&mut self) {
        let kubeconfig = self.kubeconfig(User::Test);
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let client = client_of(&kubeconfig).await;
                let ready = async {
                    while !is_ready(&client).await {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                };
                if tokio::time::timeout(Duration::from_secs(120), ready).await.is_err() {
                    return Err("kube-apiserver: /readyz: not ok within 120 s");
                }
                apply_rbac(&client).await;
                Ok(())
            })
        };
        match std::thread::spawn(work).join() {
            Ok(Ok(())) => {}
            Ok(Err(why)) => panic!("{why}:\n{}", self.kube_apiserver.log_tail()),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// One finished request, as the audit log has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditEntry {
    /// `create`, `patch`, …
    pub(crate) verb: String,
    /// Who asked.
    pub(crate) user: AuditUser,
    /// For what; absent for paths that are no resource.
    pub(crate) object_ref: Option<AuditObject>,
    /// What came of it.
    pub(crate) response_status: Option<AuditStatus>,
}

/// `user` of an audit entry.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AuditUser {
    /// User name.
    pub(crate) username: String,
}

/// `objectRef` of an audit entry.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AuditObject {
    /// Such as `nodes`.
    pub(crate) resource: String,
    /// Such as `status`; empty if none.
    #[serde(default)]
    pub(crate) subresource: String,
    /// Name of the object; empty for a list or a create with a generated name.
    #[serde(default)]
    pub(crate) name: String,
}

/// `responseStatus` of an audit entry.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AuditStatus {
    /// HTTP status.
    pub(crate) code: u16,
}

impl AuditEntry {
    /// Whether it is a write of this user.
    pub(crate) fn is_write_of(&self, user: User) -> bool {
        const WRITES: [&str; 4] = ["create", "update", "patch", "delete"];
        self.user.username == user.name() && WRITES.contains(&self.verb.as_str())
    }

    /// Whether it is about the object of this name.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.object_ref.as_ref().is_some_and(|object| object.name == name)
    }

    /// `verb resource[/subresource]`.
    pub(crate) fn kind(&self) -> String {
        match &self.object_ref {
            Some(object) if object.subresource.is_empty() => format!("{} {}", self.verb, object.resource),
            Some(object) => format!("{} {}/{}", self.verb, object.resource, object.subresource),
            None => self.verb.clone(),
        }
    }

    /// The HTTP status it was answered with.
    pub(crate) fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }
}

/// Follows the audit log.
#[derive(Debug)]
pub(crate) struct AuditTail {
    file: File,
    /// The beginning of a line that is still being written.
    rest: String,
}

impl AuditTail {
    /// What was added since the last time.
    pub(crate) fn read(&mut self) -> Vec<AuditEntry> {
        self.file.read_to_string(&mut self.rest).expect("read the audit log");
        let Some(end) = self.rest.rfind('\n') else { return Vec::new() };
        let rest = self.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.rest, rest);
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of the audit log")).collect()
    }
}

/// How many entries there are of each kind and HTTP status.
pub(crate) fn count_by_kind<'a>(entries: impl IntoIterator<Item = &'a AuditEntry>) -> BTreeMap<(String, u16), usize> {
    let mut counts = BTreeMap::new();
    for entry in entries {
        *counts.entry((entry.kind(), entry.code())).or_insert(0) += 1;
    }
    counts
}

fn start_kube_apiserver(directory: &Path, store: &str, port: u16) -> Leash {
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path
    };
    let key = file("service-account.key", SERVICE_ACCOUNT_KEY);
    let line = |user: User| format!("{},{},{},{}\n", user.token(), user.name(), user.name(), user.group());
    let tokens = file("tokens.csv", &User::ALL.map(line).concat());
    let policy = file("audit-policy.yaml", &audit_policy());

    let mut command = Command::new(&tools().kube_apiserver);
    command.arg("--etcd-servers").arg(store);
    command.args(["--bind-address=127.0.0.1", "--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC"]);
    command.arg(format!("--secure-port={port}"));
    command.arg("--cert-dir").arg(directory.join("certificates"));
    command.args(["--service-account-issuer=https://kubernetes.default.svc"]);
    command.arg("--service-account-key-file").arg(&key).arg("--service-account-signing-key-file").arg(&key);
    command.arg("--token-auth-file").arg(tokens);
    // With it on, every pod wants a token of a service account that no controller makes here.
    command.arg("--disable-admission-plugins=ServiceAccount");
    command.arg("--audit-policy-file").arg(policy).arg("--audit-log-path").arg(directory.join("audit.log"));
    // Fair queueing would measure the test's own storms of requests, not attachd's.
    command.args(["--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000"]);
    Leash::start("kube-apiserver", &command, directory.join("kube-apiserver.log"))
}

/// Signs the tokens of service accounts, of which there are none: any key does. This one is the number 0x0101…01 on
/// curve P-256, so nobody takes it for a secret.
const SERVICE_ACCOUNT_KEY: &str = "-----BEGIN EC PRIVATE KEY-----\n\
    MDECAQEEIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBoAoGCCqGSM49AwEH\n\
    -----END EC PRIVATE KEY-----\n";

/// Metadata of every write, and of attachd's reads.
fn audit_policy() -> String {
    format!(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules:\n\
         - {{level: Metadata, users: [\"{}\"]}}\n\
         - {{level: Metadata, verbs: [create, update, patch, delete, deletecollection]}}\n\
         - {{level: None}}\n",
        User::Attachd.name()
    )
}

/// A new directory below `target/tmp`. Those of test binaries that are gone are removed, so that the last run can be
/// looked at and earlier ones do not pile up.
fn fresh_directory(label: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cluster");
    fs::create_dir_all(&root).unwrap_or_else(|error| panic!("cannot create {}: {error}", root.display()));
    for entry in fs::read_dir(&root).expect("list target/tmp/cluster").flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.split('-').next());
        if process.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = root.join(format!("{}-{count}-{label}", std::process::id()));
    fs::create_dir(&directory).unwrap_or_else(|error| panic!("cannot create {}: {error}", directory.display()));
    directory
}

/// A port nobody listens on now. kube-apiserver takes no port 0; that another program takes it in between is unlikely,
/// since the kernel hands out ephemeral ports in turn.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr()).expect("a free port").port()
}

async fn client_of(kubeconfig: &Path) -> Client {
    // Whoever asks first; the others find it done.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("read a kubeconfig");
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a client's settings");
    config.proxy_url = None;
    Client::try_from(config).expect("a client")
}

async fn is_ready(client: &Client) -> bool {
    let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
    client.request_text(request).await.is_ok()
}

/// Creates what `config/deploy/rbac.yaml` holds.
async fn apply_rbac(client: &Client) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/deploy/rbac.yaml");
    let text = fs::read_to_string(&path).expect("read config/deploy/rbac.yaml");
    let objects: Vec<DynamicObject> = serde_saphyr::from_multiple(&text).expect("config/deploy/rbac.yaml");
    for object in objects {
        let types = object.types.clone().expect("apiVersion and kind");
        let kind = GroupVersionKind::try_from(&types).expect("apiVersion and kind");
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        // The namespace kube-system is made by the server itself, soon after it is ready.
        let mut attempts = 0;
        while let Err(error) = api.create(&PostParams::default(), &object).await {
            attempts += 1;
            assert!(attempts < 100, "create {} of rbac.yaml: {error}", types.kind);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

//! A whole cluster for one test: API server, EC2's stand-in, nodes with their kubelets, volumes with their claims, and
//! the real attachd between them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use attachd::model::ids::{AwsVolumeId, DriverName, EBS_DRIVER, InstanceId, NodeName};
use attachd::model::node::MANAGED_ANNOTATION;

use crate::apiserver::{ApiServer, User, free_port};
use crate::ec2::{Ec2, Pace};
use crate::kubelet::{Kubelets, Leases, Machine};
use crate::leash::Leash;
use crate::past::Past;

/// The namespace of pods and claims.
pub(crate) const NAMESPACE: &str = "work";
pub(crate) const ZONE: &str = "us-east-1a";
/// Takes 31 volumes beside its root.
pub(crate) const INSTANCE_TYPE: &str = "m7i.large";
/// Requests in flight while objects are made: the server is one process on the same machine.
pub(crate) const AT_ONCE: usize = 16;

/// A start that takes longer is none: it lists everything there is.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// How large a cluster, how fast its EC2, and what runs beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Nodes.
    pub(crate) nodes: usize,
    /// Volumes, each with claim and PersistentVolume.
    pub(crate) volumes: usize,
    /// EC2's pace, and attachd's budget with it.
    pub(crate) pace: Pace,
    /// Whether others run at the same time.
    pub(crate) company: Company,
    /// Whether the kubelets renew Leases.
    pub(crate) leases: Leases,
    /// So many of the volumes were attached by an earlier attachd, spread over the nodes.
    pub(crate) attached: usize,
    /// So many of the nodes have a kubelet, at most.
    pub(crate) kubelets: usize,
}

impl Size {
    /// A cluster that has the machine to itself.
    pub(crate) const fn alone(nodes: usize, volumes: usize, pace: Pace) -> Self {
        Self::of(nodes, volumes, pace, Company::Alone)
    }

    /// A small cluster beside others.
    pub(crate) const fn with_others(nodes: usize, volumes: usize, pace: Pace) -> Self {
        Self::of(nodes, volumes, pace, Company::Others)
    }

    const fn of(nodes: usize, volumes: usize, pace: Pace, company: Company) -> Self {
        Self { nodes, volumes, pace, company, leases: Leases::None, attached: 0, kubelets: usize::MAX }
    }
}

/// Which other clusters may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// None: it measures, or is large.
    Alone,
    /// Others that wait most of their time, as it does itself.
    Others,
}

/// A cluster that is alone has the machine to itself, as far as the other tests let it.
static TURNS: LazyLock<Arc<RwLock<()>>> = LazyLock::new(Arc::default);

/// Held as long as the cluster is there.
enum Turn {
    Alone { _guard: OwnedRwLockWriteGuard<()> },
    WithOthers { _guard: OwnedRwLockReadGuard<()> },
}

impl Turn {
    async fn wait(company: Company) -> Self {
        match company {
            Company::Alone => Self::Alone { _guard: TURNS.clone().write_owned().await },
            Company::Others => Self::WithOthers { _guard: TURNS.clone().read_owned().await },
        }
    }
}

/// The cluster. Everything in it ends with it.
pub(crate) struct Cluster {
    // Dropped in this order: attachd before what it works on.
    attachd: Option<Leash>,
    attachd_port: u16,
    kubelets: Kubelets,
    pub(crate) ec2: Ec2,
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    pub(crate) machines: Vec<Machine>,
    pub(crate) volumes: Vec<AwsVolumeId>,
    pub(crate) pace: Pace,
    _turn: Turn,
}

impl Cluster {
    /// Makes the cluster, at rest: nothing is wanted anywhere, attachd is not running yet.
    pub(crate) async fn start(label: &str, size: Size) -> Self {
        let turn = Turn::wait(size.company).await;
        let label = label.to_owned();
        let server = tokio::task::spawn_blocking(move || ApiServer::start(&label)).await.expect("start the servers");
        let ec2 = Ec2::start(size.pace);
        let client = server.client(User::Test).await;

        let machines: Vec<Machine> = (0..size.nodes)
            .map(|n| Machine {
                node: NodeName::new(format!("node-{n:03}")),
                instance: InstanceId::parse(&format!("i-{:017x}", n + 1)).expect("an instance id"),
                boot: format!("boot-{n:03}"),
            })
            .collect();
        // Other digits than the instances: the modelled root volume of i-1 is vol-1.
        let volumes: Vec<AwsVolumeId> = (0..size.volumes)
            .map(|n| AwsVolumeId::parse(&format!("vol-{:017x}", n + 0xA000)).expect("a volume id"))
            .collect();
        for machine in &machines {
            ec2.add_instance(&machine.instance, INSTANCE_TYPE, ZONE);
        }
        for volume in &volumes {
            ec2.add_volume(volume, ZONE);
        }
        create_cluster_objects(&client).await;
        let nodes = stream::iter(&machines).map(|machine| create_node(&client, machine));
        nodes.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
        let claims = stream::iter(volumes.iter().enumerate())
            .map(|(n, volume)| create_claim(&client, n, volume, n < size.attached));
        claims.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
        let past = Past { server: &server, client: &client, ec2: &ec2, machines: &machines };
        past.attach(&volumes[..size.attached]).await;

        let claims: BTreeMap<_, _> =
            volumes.iter().enumerate().map(|(n, volume)| (claim_name(n), volume.clone())).collect();
        let busy = &machines[..size.kubelets.min(machines.len())];
        let kubelets = Kubelets::start(&client, busy, &Arc::new(claims), &ec2, size.leases);
        Self {
            attachd: None,
            attachd_port: 0,
            kubelets,
            ec2,
            server,
            client,
            machines,
            volumes,
            pace: size.pace,
            _turn: turn,
        }
    }

    /// Starts `attachd run` as a deployment would, and waits until it is ready.
    pub(crate) async fn start_attachd(&mut self) {
        self.start_attachd_with("").await;
    }

    /// The same, with further lines for attachd.yaml.
    pub(crate) async fn start_attachd_with(&mut self, settings: &str) {
        let directory = self.server.directory().to_owned();
        let port = free_port();
        let config = directory.join("attachd.yaml");
        let text = format!(
            "kubeconfig: {}\nlisten: 127.0.0.1:{port}\nec2:\n  endpoint: {}\n  region: us-east-1\n{}{settings}",
            self.server.kubeconfig(User::Attachd).display(),
            self.ec2.url(),
            self.pace.budgets(),
        );
        fs::write(&config, text).expect("write attachd.yaml");
        let mut command = Command::new(env!("CARGO_BIN_EXE_attachd"));
        command.arg("run").arg("--config").arg(config);
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        command.env("NO_PROXY", "127.0.0.1").env("AWS_EC2_METADATA_DISABLED", "true");
        let log = directory.join(format!("attachd-{port}.log"));
        let attachd = tokio::task::spawn_blocking(move || {
            let mut attachd = Leash::start("attachd", &command, log);
            attachd.wait_until(READY_WITHIN, "/readyz is ok", || is_ready(port));
            attachd
        });
        self.attachd = Some(attachd.await.expect("start attachd"));
        self.attachd_port = port;
    }

    /// The running attachd.
    pub(crate) fn attachd(&mut self) -> &mut Leash {
        self.attachd.as_mut().expect("attachd was started")
    }

    /// Whether attachd says that it is ready.
    pub(crate) fn attachd_is_ready(&self) -> bool {
        is_ready(self.attachd_port)
    }

    /// What attachd has in memory, in bytes, as it tells itself.
    pub(crate) fn resident_memory(&self) -> f64 {
        let metrics = ask(self.attachd_port, "/metrics").expect("attachd's metrics");
        let value = metrics.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
        value.and_then(|value| value.parse().ok()).expect("a number")
    }

    /// attachd dies (KILL) and is gone when this returns.
    pub(crate) async fn kill_attachd(&mut self) {
        self.attachd().signal("KILL");
        assert_eq!(self.wait_for_attachds_end(Duration::from_secs(5)).await, 128 + 9);
    }

    /// Waits for the end that attachd was told, and returns its exit status.
    pub(crate) async fn wait_for_attachds_end(&mut self, patience: Duration) -> i32 {
        let mut attachd = self.attachd.take().expect("attachd runs");
        let end = tokio::task::spawn_blocking(move || attachd.wait_for_end(patience));
        end.await.expect("wait for its end")
    }

    /// Ends attachd as a deployment would (TERM); panics if it does not end with success.
    pub(crate) async fn stop_attachd(&mut self) {
        let mut attachd = self.attachd.take().expect("attachd runs");
        let (ended_well, log) =
            tokio::task::spawn_blocking(move || (attachd.stop(), attachd.log_tail())).await.expect("stop attachd");
        assert!(ended_well, "attachd did not end well:\n{log}");
    }

    /// Panics if attachd has ended.
    pub(crate) fn assert_attachd_runs(&mut self) {
        self.attachd().assert_running();
    }

    /// The kubelets.
    pub(crate) fn kubelets(&self) -> &Kubelets {
        &self.kubelets
    }

    /// Makes a pod that wants volume `n`, bound to a node.
    pub(crate) async fn create_pod(&self, name: &str, n: usize, node: usize) -> Pod {
        self.create_pod_of(name, &[n], node).await
    }

    /// Makes a pod that wants several volumes, bound to a node.
    pub(crate) async fn create_pod_of(&self, name: &str, volumes: &[usize], node: usize) -> Pod {
        let volume =
            |n: &usize| json!({"name": format!("data-{n}"), "persistentVolumeClaim": {"claimName": claim_name(*n)}});
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.machines[node].node.as_str(),
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "none"}],
                "volumes": volumes.iter().map(volume).collect::<Vec<_>>(),
            },
        });
        create(&namespaced(&self.client), object).await
    }

    /// Orders the deletion of a pod; its kubelet lets it go.
    pub(crate) async fn delete_pod(&self, name: &str) {
        self.delete_pod_with(name, &DeleteParams::default()).await;
    }

    /// Deletes a pod at once, without its kubelet (`kubectl delete --force`, pod garbage collection).
    pub(crate) async fn force_delete_pod(&self, name: &str) {
        self.delete_pod_with(name, &DeleteParams::default().grace_period(0)).await;
    }

    async fn delete_pod_with(&self, name: &str, how: &DeleteParams) {
        let api: Api<Pod> = namespaced(&self.client);
        api.delete(name, how).await.unwrap_or_else(|error| panic!("delete pod {name}: {error}"));
    }

    /// Sets a node's Ready condition, as the node lifecycle controller does when its kubelet is silent.
    pub(crate) async fn set_ready(&self, node: usize, status: &str) {
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let condition =
            json!({"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "lastTransitionTime": now});
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let patched = api.patch_status(self.machines[node].node.as_str(), &PatchParams::default(), &patch).await;
        patched.unwrap_or_else(|error| panic!("set Ready of node {node}: {error}"));
    }

    /// Makes many pods at once: (name, volume, node).
    pub(crate) async fn create_pods(&self, pods: Vec<(String, usize, usize)>) {
        stream::iter(pods)
            .map(|(name, n, node)| async move { drop(self.create_pod(&name, n, node).await) })
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<()>>()
            .await;
    }

    /// Orders the deletion of many pods at once.
    pub(crate) async fn delete_pods(&self, names: Vec<String>) {
        stream::iter(names)
            .map(|name| async move { self.delete_pod(&name).await })
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<()>>()
            .await;
    }

    /// Waits until `done` holds, asking twice a second; panics with what it last said if it takes longer than
    /// `patience`, or if attachd ends.
    pub(crate) async fn wait_until(&mut self, patience: Duration, done: impl AsyncFn(&Self) -> Result<(), String>) {
        let begun = Instant::now();
        loop {
            self.assert_attachd_runs();
            let Err(missing) = done(self).await else { return };
            if begun.elapsed() > patience {
                let log = self.attachd.as_ref().map(Leash::log_tail).unwrap_or_default();
                panic!("not within {patience:?}: {missing}\nattachd's log:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Whether attachd says so.
fn is_ready(port: u16) -> bool {
    ask(port, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
}

/// What attachd answers. Plain HTTP over a socket: one line is all there is to read.
fn ask(port: u16, path: &str) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    write!(socket, "GET {path} HTTP/1.1\r\nHost: attachd\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The name of the claim of volume `n`.
pub(crate) fn claim_name(n: usize) -> String {
    format!("claim-{n:04}")
}

/// The PersistentVolume of volume `n`.
pub(crate) fn persistent_volume_name(n: usize) -> String {
    format!("pv-{n:04}")
}

fn namespaced<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), NAMESPACE)
}

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
{
    let typed: K = serde_json::from_value(object).expect("an object of its kind");
    api.create(&PostParams::default(), &typed).await.unwrap_or_else(|error| panic!("create {typed:?}: {error}"))
}

async fn create_cluster_objects(client: &Client) {
    create::<Namespace>(&Api::all(client.clone()), json!({"metadata": {"name": NAMESPACE}})).await;
    let driver = json!({"metadata": {"name": EBS_DRIVER}, "spec": {"attachRequired": true}});
    create::<CSIDriver>(&Api::all(client.clone()), driver).await;
}

/// Registers a node as its kubelet and the driver's node service do.
async fn create_node(client: &Client, machine: &Machine) {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let unused = "";
    let node = json!({
        "metadata": {
            "name": machine.node.as_str(),
            "annotations": {MANAGED_ANNOTATION: "true"},
            "labels": {"topology.kubernetes.io/zone": ZONE, "node.kubernetes.io/instance-type": INSTANCE_TYPE},
        },
        "spec": {"providerID": format!("aws:///{ZONE}/{}", machine.instance)},
        "status": {
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
            "nodeInfo": {
                "bootID": machine.boot, "machineID": unused, "systemUUID": unused, "kernelVersion": unused,
                "osImage": unused, "containerRuntimeVersion": unused, "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": unused, "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    });
    create::<Node>(&Api::all(client.clone()), node).await;
    let csi_node = json!({
        "metadata": {"name": machine.node.as_str()},
        "spec": {"drivers": [{
            "name": EBS_DRIVER, "nodeID": machine.instance.text(),
            "topologyKeys": ["topology.ebs.csi.aws.com/zone"], "allocatable": {"count": 31},
        }]},
    });
    create::<CSINode>(&Api::all(client.clone()), csi_node).await;
}

/// Makes claim and PersistentVolume of volume `n`, bound to one another as the volume binder does.
async fn create_claim(client: &Client, n: usize, volume: &AwsVolumeId, attached: bool) {
    // As csi-provisioner makes them, but the first, which a person made: it gets zone labels at its first sweep.
    let by_hand = n == 0 && !attached;
    // Something was attached already.
    let finalizers: &[String] = if attached { &[DriverName::ebs().attacher_finalizer()] } else { &[] };
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [ZONE]}
    ]}]}});
    let claims: Api<PersistentVolumeClaim> = namespaced(client);
    let size = json!({"storage": "1Gi"});
    let claim = json!({
        "metadata": {"name": claim_name(n)},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": size},
            "storageClassName": "", "volumeName": persistent_volume_name(n),
        },
    });
    let claim = create(&claims, claim).await;
    let persistent_volume = json!({
        "metadata": {"name": persistent_volume_name(n), "finalizers": finalizers},
        "spec": {
            "nodeAffinity": (!by_hand).then_some(affinity),
            "accessModes": ["ReadWriteOnce"], "capacity": size, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": EBS_DRIVER, "volumeHandle": volume.text(), "fsType": "ext4"},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NAMESPACE,
                "name": claim_name(n), "uid": claim.metadata.uid,
            },
        },
    });
    create::<PersistentVolume>(&Api::all(client.clone()), persistent_volume).await;
    let status = json!({"status": {
        "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": size,
    }});
    let bound = claims.patch_status(&claim_name(n), &PatchParams::default(), &Patch::Merge(status)).await;
    bound.unwrap_or_else(|error| panic!("bind {}: {error}", claim_name(n)));
}

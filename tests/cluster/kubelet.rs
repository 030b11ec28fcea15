//! The kubelets' side of the contract, for many nodes, on a real API server.
//!
//! Each node does what a kubelet does and in its order: it reports a volume in use before it mounts it; it mounts only
//! what a Node object not older than that report lists as attached, and whose VolumeAttachment says so; it reports the
//! volume in use until the unmount is over; only then does it let the pod go. What the modelled kernel holds is told to
//! EC2's stand-in, which keeps a device that is held as long as EC2 would. A real kubelet writes its status within ten
//! seconds of a change and backs off between looks; this one writes within a second and looks every half. Where the node
//! lifecycle controller runs, they renew their Leases, by which it tells that they live.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::task::{AbortHandle, JoinSet};

use attachd::model::device::DeviceName;
use attachd::model::ids::{AttachmentKey, AttachmentName, AwsVolumeId, InstanceId, NodeName, VolumeKey};

use crate::ec2::Ec2;

const TICK: Duration = Duration::from_millis(100);
const REPORT_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// From the pod's deletion to the end of its containers and mounts.
const UNMOUNT_TAKES: Duration = Duration::from_millis(300);

/// As a real kubelet renews its Lease.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// Whether the kubelets renew their Leases. Where nobody looks at them it would only be noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leases {
    /// Every ten seconds.
    Renewed,
    /// There are none.
    None,
}

/// A machine, and the Node object for it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// The Node's name.
    pub(crate) node: NodeName,
    /// The instance.
    pub(crate) instance: InstanceId,
    /// `status.nodeInfo.bootID`
    pub(crate) boot: String,
}

/// Where the kubelets find the volume of a claim: claim name → volume.
pub(crate) type Claims = Arc<BTreeMap<String, AwsVolumeId>>;

/// The running kubelets; they stop when this is dropped.
#[derive(Debug)]
pub(crate) struct Kubelets {
    seen: Arc<Mutex<Seen>>,
    kubelets: BTreeMap<NodeName, AbortHandle>,
    _tasks: JoinSet<()>,
}

/// What the watches show, and what the nodes do.
#[derive(Debug, Default)]
struct Seen {
    pods: BTreeMap<(String, String), SeenPod>,
    nodes: BTreeMap<String, SeenNode>,
    mounts: BTreeMap<(AwsVolumeId, InstanceId), Mount>,
    listed: BTreeMap<(String, AwsVolumeId), Instant>,
    reported: BTreeMap<(String, AwsVolumeId), Instant>,
    faults: Vec<String>,
}

/// A volume mounted on a machine.
#[derive(Clone, Debug)]
pub(crate) struct Mount {
    /// The attachment it was mounted on.
    pub(crate) generation: u64,
    /// Its device name.
    pub(crate) device: DeviceName,
    /// The machine's boot.
    pub(crate) boot: String,
    /// UIDs of the pods that use it.
    pub(crate) pods: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct SeenPod {
    namespace: String,
    name: String,
    uid: String,
    node: String,
    claims: Vec<String>,
    deleting: bool,
}

#[derive(Clone, Debug, Default)]
struct SeenNode {
    version: u64,
    attached: BTreeSet<String>,
}

impl Kubelets {
    /// Starts one kubelet for each machine, and the watches they share.
    pub(crate) fn start(client: &Client, machines: &[Machine], claims: &Claims, ec2: &Ec2, leases: Leases) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_pods(client.clone(), seen.clone()));
        tasks.spawn(watch_nodes(client.clone(), seen.clone()));
        let mut kubelets = BTreeMap::new();
        for machine in machines {
            let kubelet = Kubelet {
                client: client.clone(),
                machine: machine.clone(),
                claims: claims.clone(),
                ec2: ec2.clone(),
                seen: seen.clone(),
                volumes: BTreeMap::new(),
                reported: Report::default(),
                leases,
                renewed: None,
            };
            kubelets.insert(machine.node.clone(), tasks.spawn(kubelet.run()));
        }
        Self { seen, kubelets, _tasks: tasks }
    }

    /// The kubelet of a node dies: nothing is reported, mounted or unmounted there any more. What is mounted stays.
    pub(crate) async fn kill(&self, node: &NodeName) {
        let kubelet = &self.kubelets[node];
        kubelet.abort();
        while !kubelet.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The machine goes off: its kubelet with it, and every mount.
    pub(crate) async fn power_off(&self, machine: &Machine) {
        self.kill(&machine.node).await;
        let mut seen = self.seen.lock().expect("no kubelet panicked");
        seen.mounts.retain(|(_, instance), _| *instance != machine.instance);
    }

    /// What is mounted where, and by which pods (their UIDs).
    pub(crate) fn mounts(&self) -> BTreeMap<(AwsVolumeId, InstanceId), Mount> {
        self.seen.lock().expect("no kubelet panicked").mounts.clone()
    }

    /// What went wrong under the kubelets: a volume listed that is not there, or gone from under a mount.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.seen.lock().expect("no kubelet panicked").faults.clone()
    }

    /// When the volume first appeared in the node's `volumesAttached` since it last was absent from it.
    pub(crate) fn listed_at(&self, node: &NodeName, volume: &AwsVolumeId) -> Option<Instant> {
        let key = (node.as_str().to_owned(), volume.clone());
        self.seen.lock().expect("no kubelet panicked").listed.get(&key).copied()
    }

    /// When the node's status first showed the volume in use since it last did not.
    pub(crate) fn reported_at(&self, node: &NodeName, volume: &AwsVolumeId) -> Option<Instant> {
        let key = (node.as_str().to_owned(), volume.clone());
        self.seen.lock().expect("no kubelet panicked").reported.get(&key).copied()
    }
}

/// One node.
struct Kubelet {
    client: Client,
    machine: Machine,
    claims: Claims,
    ec2: Ec2,
    seen: Arc<Mutex<Seen>>,
    volumes: BTreeMap<AwsVolumeId, Use>,
    reported: Report,
    leases: Leases,
    renewed: Option<Instant>,
}

/// What a kubelet does with a volume. A volume without an entry is not in use.
#[derive(Clone, Debug)]
enum Use {
    /// In use from now on, not mounted yet.
    Awaited { look_at: Instant },
    /// Mounted.
    Mounted(Mount),
    /// The last pod is on its way out.
    Unmounting { mount: Mount, until: Instant },
}

/// The last status this kubelet wrote.
#[derive(Debug, Default)]
struct Report {
    in_use: BTreeSet<AwsVolumeId>,
    at: Option<Instant>,
    version: u64,
}

impl Kubelet {
    async fn run(mut self) {
        loop {
            let pods = self.pods();
            self.renew_lease().await;
            self.take_up(&pods);
            self.report().await;
            self.mount(&pods).await;
            self.unmount(&pods).await;
            self.release(&pods).await;
            tokio::time::sleep(TICK).await;
        }
    }

    fn pods(&self) -> Vec<SeenPod> {
        let seen = self.seen.lock().expect("no watch panicked");
        seen.pods.values().filter(|pod| pod.node == self.machine.node.as_str()).cloned().collect()
    }

    fn volumes_of(&self, pod: &SeenPod) -> BTreeSet<AwsVolumeId> {
        pod.claims.iter().filter_map(|claim| self.claims.get(claim).cloned()).collect()
    }

    /// A volume that a pod wants is in use before anything else happens to it.
    fn take_up(&mut self, pods: &[SeenPod]) {
        for pod in pods.iter().filter(|pod| !pod.deleting) {
            for volume in self.volumes_of(pod) {
                self.volumes.entry(volume).or_insert(Use::Awaited { look_at: Instant::now() });
            }
        }
        // Awaited, and nobody wants it any more: nothing is mounted, so it is simply dropped.
        let wanted: BTreeSet<_> =
            pods.iter().filter(|pod| !pod.deleting).flat_map(|pod| self.volumes_of(pod)).collect();
        self.volumes.retain(|volume, usage| wanted.contains(volume) || !matches!(usage, Use::Awaited { .. }));
    }

    async fn renew_lease(&mut self) {
        if self.leases == Leases::None || self.renewed.is_some_and(|at| at.elapsed() < RENEW_EVERY) {
            return;
        }
        let api: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        let name = self.machine.node.as_str();
        // Microseconds, no more and no less, is what the server takes.
        let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
        });
        match api.patch(name, &PatchParams::apply("kubelet").force(), &Patch::Apply(lease)).await {
            Ok(_) => self.renewed = Some(Instant::now()),
            Err(error) => complain(name, "renew its Lease", &error),
        }
    }

    /// Writes `volumesInUse`, and the Ready condition with it, when the set changed.
    async fn report(&mut self) {
        let in_use: BTreeSet<AwsVolumeId> = self.volumes.keys().cloned().collect();
        let due = self.reported.at.is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if !due || (in_use == self.reported.in_use && self.reported.at.is_some()) {
            return;
        }
        let names: Vec<String> = in_use.iter().map(unique_name).collect();
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let status = json!({"status": {
            "volumesInUse": names,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}],
        }});
        let api: Api<Node> = Api::all(self.client.clone());
        let name = self.machine.node.as_str();
        match api.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await {
            Ok(node) => {
                self.note_report(&in_use);
                self.reported = Report { in_use, at: Some(Instant::now()), version: version_of(&node.metadata) };
            }
            Err(error) => complain(name, "report", &error),
        }
    }

    fn note_report(&self, in_use: &BTreeSet<AwsVolumeId>) {
        let mut seen = self.seen.lock().expect("no watch panicked");
        let name = self.machine.node.as_str();
        seen.reported.retain(|(node, volume), _| node != name || in_use.contains(volume));
        for volume in in_use {
            seen.reported.entry((name.to_owned(), volume.clone())).or_insert_with(Instant::now);
        }
    }

    /// Mounts what is reported in use, listed as attached since, and attached by its VolumeAttachment.
    async fn mount(&mut self, pods: &[SeenPod]) {
        let listed = {
            let seen = self.seen.lock().expect("no watch panicked");
            seen.nodes.get(self.machine.node.as_str()).cloned().unwrap_or_default()
        };
        for pod in pods.iter().filter(|pod| !pod.deleting) {
            for volume in self.volumes_of(pod) {
                match self.volumes.get_mut(&volume) {
                    Some(Use::Mounted(mount)) => {
                        if mount.pods.insert(pod.uid.clone()) {
                            self.publish(&volume);
                        }
                    }
                    Some(Use::Awaited { look_at }) if *look_at <= Instant::now() => {
                        *look_at = Instant::now() + LOOK_EVERY;
                        let ready = self.reported.in_use.contains(&volume)
                            && listed.version >= self.reported.version
                            && listed.attached.contains(&unique_name(&volume));
                        if ready && self.attachment_says_attached(&volume).await {
                            self.mount_one(&volume, &pod.uid);
                        }
                    }
                    Some(Use::Awaited { .. } | Use::Unmounting { .. }) | None => {}
                }
            }
        }
    }

    fn mount_one(&mut self, volume: &AwsVolumeId, pod: &str) {
        let Some(attachment) = self.ec2.attached(&self.machine.instance, volume) else {
            self.fault(format!("{volume} is listed on {}, but EC2 does not show it attached", self.machine.node));
            return;
        };
        self.ec2.set_guest_holds(&self.machine.instance, volume, true);
        let mount = Mount {
            generation: attachment.generation,
            device: attachment.device,
            boot: self.machine.boot.clone(),
            pods: BTreeSet::from([pod.to_owned()]),
        };
        self.volumes.insert(volume.clone(), Use::Mounted(mount));
        self.publish(volume);
    }

    async fn attachment_says_attached(&self, volume: &AwsVolumeId) -> bool {
        let key = AttachmentKey { volume: VolumeKey::ebs(volume), node: self.machine.node.clone() };
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        let Ok(Some(object)) = api.get_opt(&AttachmentName::of(&key).text()).await else { return false };
        object.metadata.deletion_timestamp.is_none() && object.status.is_some_and(|status| status.attached)
    }

    /// Takes pods that go off their mounts; the last one begins the unmount.
    async fn unmount(&mut self, pods: &[SeenPod]) {
        let staying: BTreeSet<&str> = pods.iter().filter(|pod| !pod.deleting).map(|pod| pod.uid.as_str()).collect();
        let mut over = Vec::new();
        for (volume, usage) in &mut self.volumes {
            match usage {
                Use::Mounted(mount) => {
                    mount.pods.retain(|uid| staying.contains(uid.as_str()));
                    if mount.pods.is_empty() {
                        *usage = Use::Unmounting { mount: mount.clone(), until: Instant::now() + UNMOUNT_TAKES };
                    }
                }
                Use::Unmounting { mount, until } if *until <= Instant::now() => {
                    over.push((volume.clone(), mount.generation));
                }
                Use::Unmounting { .. } | Use::Awaited { .. } => {}
            }
        }
        for (volume, generation) in over {
            let attached = self.ec2.attached(&self.machine.instance, &volume);
            if attached.is_none_or(|attachment| attachment.generation != generation) {
                self.fault(format!("{volume} went from under its mount on {}", self.machine.node));
            }
            self.ec2.set_guest_holds(&self.machine.instance, &volume, false);
            self.volumes.remove(&volume);
            self.publish(&volume);
        }
    }

    /// Lets pods go whose volumes are unmounted.
    async fn release(&self, pods: &[SeenPod]) {
        for pod in pods.iter().filter(|pod| pod.deleting) {
            let mounted = |volume: &AwsVolumeId| match self.volumes.get(volume) {
                Some(Use::Mounted(mount)) => mount.pods.contains(&pod.uid),
                Some(Use::Unmounting { .. }) => true,
                Some(Use::Awaited { .. }) | None => false,
            };
            if self.volumes_of(pod).iter().any(mounted) {
                continue;
            }
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
            let now = DeleteParams::default().grace_period(0);
            if let Err(error) = api.delete(&pod.name, &now).await
                && !is_not_found(&error)
            {
                complain(self.machine.node.as_str(), "release a pod", &error);
            }
        }
    }

    /// Shows the others what is mounted. A mount counts until its unmount is over.
    fn publish(&self, volume: &AwsVolumeId) {
        let key = (volume.clone(), self.machine.instance.clone());
        let mut seen = self.seen.lock().expect("no watch panicked");
        match self.volumes.get(volume) {
            Some(Use::Mounted(mount)) => drop(seen.mounts.insert(key, mount.clone())),
            Some(Use::Awaited { .. } | Use::Unmounting { .. }) => {}
            None => drop(seen.mounts.remove(&key)),
        }
    }

    fn fault(&self, what: String) {
        let mut seen = self.seen.lock().expect("no watch panicked");
        if !seen.faults.contains(&what) {
            seen.faults.push(what);
        }
    }
}

async fn watch_pods(client: Client, seen: Arc<Mutex<Seen>>) {
    let mut events = watcher(Api::<Pod>::all(client), watcher::Config::default()).default_backoff().boxed();
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(pod) => drop(seen_pod(&pod).map(|(key, pod)| listed.insert(key, pod))),
            watcher::Event::InitDone => {
                seen.lock().expect("no kubelet panicked").pods = std::mem::take(&mut listed);
            }
            watcher::Event::Apply(pod) => {
                if let Some((key, pod)) = seen_pod(&pod) {
                    seen.lock().expect("no kubelet panicked").pods.insert(key, pod);
                }
            }
            watcher::Event::Delete(pod) => {
                if let Some((key, _)) = seen_pod(&pod) {
                    seen.lock().expect("no kubelet panicked").pods.remove(&key);
                }
            }
        }
    }
}

fn seen_pod(pod: &Pod) -> Option<((String, String), SeenPod)> {
    let (namespace, name) = (pod.metadata.namespace.clone()?, pod.metadata.name.clone()?);
    let spec = pod.spec.as_ref()?;
    let claims = spec.volumes.iter().flatten().filter_map(|volume| volume.persistent_volume_claim.as_ref());
    let seen = SeenPod {
        namespace: namespace.clone(),
        name: name.clone(),
        uid: pod.metadata.uid.clone()?,
        node: spec.node_name.clone()?,
        claims: claims.map(|claim| claim.claim_name.clone()).collect(),
        deleting: pod.metadata.deletion_timestamp.is_some(),
    };
    Some(((namespace, name), seen))
}

async fn watch_nodes(client: Client, seen: Arc<Mutex<Seen>>) {
    let mut nodes = watcher(Api::<Node>::all(client), watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = nodes.next().await {
        // A Node is deleted here only after its kubelet has died.
        let Ok(watcher::Event::InitApply(node) | watcher::Event::Apply(node)) = event else { continue };
        let Some(name) = node.metadata.name.clone() else { continue };
        let entries = node.status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
        let attached: BTreeSet<String> = entries.map(|entry| entry.name.clone()).collect();
        let mut seen = seen.lock().expect("no kubelet panicked");
        let known = seen.nodes.insert(name.clone(), SeenNode { version: version_of(&node.metadata), attached });
        let (before, after) = (known.unwrap_or_default().attached, seen.nodes[&name].attached.clone());
        for gone in before.difference(&after).filter_map(|text| volume_of(text)) {
            seen.listed.remove(&(name.clone(), gone));
        }
        for came in after.difference(&before).filter_map(|text| volume_of(text)) {
            seen.listed.insert((name.clone(), came), Instant::now());
        }
    }
}

/// The resource version as a number: that of etcd, which only this test may take for ordered.
fn version_of(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

fn unique_name(volume: &AwsVolumeId) -> String {
    VolumeKey::ebs(volume).unique_name().to_string()
}

fn volume_of(unique_name: &str) -> Option<AwsVolumeId> {
    attachd::model::ids::UniqueVolumeName::new(unique_name).volume_key()?.aws_volume_id()
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn complain(node: &str, what: &str, error: &kube::Error) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "kubelet of {node}: {what}: {error}");
}

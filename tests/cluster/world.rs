//! The real servers' state as the simulator's checkers see it: the same plain snapshot, filled from a real API server,
//! the model behind the sandbox, and the kubelets' mounts.
//!
//! The parts are read one after the other, so a snapshot is true only while nothing moves: take it at rest.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use attachd::controller::event::Term;
use attachd::kubernetes::lenient::Unread;
use attachd::kubernetes::objects::{
    AttachmentObject, ClaimObject, CsiNodeObject, NodeObject, PersistentVolumeObject, PodObject,
};
use attachd::kubernetes::translate::{self, Watched};
use attachd::model::ids::{BootId, NodeName, Uid};
use attachd::model::time::{Monotonic, Now, Wall};
use attachd::model::volume::CheckStatus;
use attachd::sim::checkers::world::{
    Actor, CallCounts, Ec2Attachment, Ec2Instance, Ec2Volume, Mount, MountKey, TermHeld, Touched, World,
};
use attachd::sim::ec2::{Caller, Ec2Action, Ec2Model};

use crate::apiserver::User;
use crate::fixture::Cluster;

/// attachd leads from its start to its end.
const TERM: Term = Term(1);

/// Looks at everything.
pub(crate) async fn look(cluster: &Cluster) -> World {
    let client = &cluster.client;
    let mut world = World { now: now(), touched: Touched::everything(), ..World::default() };
    world.terms = BTreeMap::from([(TERM, TermHeld { since: Monotonic::ZERO, ended: None })]);
    cluster.ec2.sandbox().with_model(|model, _| see_ec2(&mut world, cluster, model));
    see_mounts(&mut world, cluster);
    world.nodes = by_key(list::<NodeObject, _>(client, translate::node).await, |node| node.name.clone());
    world.csi_nodes = by_key(list::<CsiNodeObject, _>(client, translate::csi_node).await, |node| node.name.clone());
    let attachments = list::<AttachmentObject, _>(client, translate::attachment).await;
    world.attachments = by_key(attachments, |object| object.name.clone());
    world.pods = by_key(list::<PodObject, _>(client, translate::pod).await, |pod| pod.key.clone());
    world.claims = by_key(list::<ClaimObject, _>(client, translate::claim).await, |claim| claim.key.clone());
    let volumes = list::<PersistentVolumeObject, _>(client, translate::persistent_volume).await;
    world.persistent_volumes = by_key(volumes, |volume| volume.name.clone());
    world.counts = counts(cluster);
    world
}

fn now() -> Now {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock past 1970");
    let millis = i64::try_from(since_epoch.as_millis()).expect("a clock before the year 292 million");
    Now { monotonic: Monotonic::new(since_epoch), wall: Wall::from_millis(millis) }
}

fn by_key<K: Ord, V>(items: Vec<V>, key: impl Fn(&V) -> K) -> BTreeMap<K, V> {
    items.into_iter().map(|item| (key(&item), item)).collect()
}

/// Every object of a kind, decoded and translated by attachd's own adapter.
async fn list<O, T>(client: &Client, translate: impl Fn(O) -> Result<T, Unread>) -> Vec<T>
where
    O: Watched + DeserializeOwned,
{
    #[derive(Deserialize)]
    struct List<O> {
        items: Vec<O>,
    }
    let request = http::Request::get(O::PATH).body(Vec::new()).expect("a request");
    let text = client.request_text(request).await.unwrap_or_else(|error| panic!("list {}: {error}", O::PATH));
    let list: List<O> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("list {}: {error}", O::PATH));
    let read = |object| translate(object).unwrap_or_else(|error| panic!("in {}: {error:?}", O::PATH));
    list.items.into_iter().map(read).collect()
}

fn see_ec2(world: &mut World, cluster: &Cluster, model: &Ec2Model) {
    let actor = |caller: &Caller| match caller {
        Caller::Leader(term) => Actor::Attachd(*term),
        // Who calls over HTTP has no name; here that is attachd alone.
        Caller::Unnamed => Actor::Attachd(TERM),
        Caller::Person => Actor::Person,
    };
    for volume in model.volumes() {
        let attachments = volume.attachments().iter().map(|attachment| Ec2Attachment {
            instance: attachment.instance.clone(),
            device: attachment.device.clone(),
            state: attachment.state.clone(),
            generation: attachment.generation,
            since: attachment.requested,
            made_by: actor(&attachment.by),
            ending_by: attachment.detach_by.as_ref().map(actor),
        });
        let seen = Ec2Volume {
            multi_attach_enabled: volume.multi_attach(),
            zone: volume.zone().clone(),
            attachments: attachments.collect(),
        };
        world.volumes.insert(volume.id().clone(), seen);
    }
    for instance in model.instances() {
        let machine = cluster.machines.iter().find(|machine| machine.instance == *instance.id());
        let limits = model.options().limits(instance.instance_type());
        let seen = Ec2Instance {
            state: instance.state().clone(),
            zone: instance.zone().clone(),
            boot: BootId::new(machine.map_or("", |machine| &machine.boot)),
            impaired: *instance.instance_check() == CheckStatus::Impaired,
            volume_limit: limits.attachments as usize,
        };
        world.instances.insert(instance.id().clone(), seen);
    }
}

fn see_mounts(world: &mut World, cluster: &Cluster) {
    for ((volume, instance), mount) in cluster.kubelets().mounts() {
        let key = MountKey { volume, instance, generation: mount.generation };
        let pods = mount.pods.into_iter().map(Uid::new).collect();
        world.mounts.insert(key, Mount { boot: BootId::new(mount.boot), device: mount.device, pods });
    }
}

/// Calls counted by EC2 and by the audit log. Writes to the API server count as one kind.
fn counts(cluster: &Cluster) -> CallCounts {
    let mut counts = CallCounts::default();
    for action in Ec2Action::ALL {
        let ended = cluster.ec2.counts(action);
        counts.by_kind.insert(action.name(), ended.accepted + ended.refused + ended.throttled + ended.unanswered);
        counts.ec2_throttles += ended.throttled;
    }
    for entry in cluster.server.audit().iter().filter(|entry| entry.is_write_of(User::Attachd)) {
        let kind = if entry.kind().ends_with(" events") { "CreateEvent" } else { "Write" };
        *counts.by_kind.entry(kind).or_default() += 1;
        counts.api_throttles += u64::from(entry.code() == 429);
        if entry.kind() == "patch nodes/status" && entry.code() == 200 {
            let name = entry.object_ref.as_ref().map_or("", |object| &object.name);
            *counts.node_patches.entry(NodeName::new(name)).or_default() += 1;
        }
    }
    counts
}

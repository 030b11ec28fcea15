//! Cases NAME: who is who.

use attachd::controller::event::{EventKind, Object, ObjectKey, WatchEvent};
use attachd::model::attachment::AttachmentSource;
use attachd::model::ids::{BootId, DriverName, NodeName, ProviderId, Uid};
use attachd::model::node::CsiNode;
use attachd::model::pod::{InlineEbs, Pod, PodVolume};
use attachd::sim::api_server::NewNode;

use super::desk::{Desk, s};
use super::hands::pod_key;
use super::short::{attachment, instance, key, node, zone};

/// Another Node than the usual ones, Ready.
fn add_odd_node(desk: &mut Desk, n: &str, provider_id: &str, csi_id: &str) {
    let provider_id = ProviderId::parse(provider_id).unwrap();
    let new = NewNode { name: node(n), provider_id, zone: zone(), boot_id: BootId::new("boot") };
    desk.api.register_node(desk.now, &new);
    desk.ready(n);
    let drivers = [(DriverName::ebs(), csi_id.into())].into();
    desk.api.put_csi_node(CsiNode { name: node(n), drivers, ebs_allocatable: None });
}

fn inline_pod(desk: &mut Desk, n: &str, spelled: &str) -> Pod {
    let inline = InlineEbs { volume_id: spelled.into(), fs_type: Some("ext4".into()), partition: 1, read_only: false };
    let pod = Pod {
        key: pod_key("inline"),
        uid: Uid::new("inline-uid"),
        node: Some(node(n)),
        created: desk.now.wall,
        scheduled: Some(desk.now.wall),
        deleting: false,
        terminated: false,
        volumes: vec![PodVolume::InlineEbs(inline)],
    };
    desk.other_pods.push(pod.clone());
    desk.tell(EventKind::Watch(WatchEvent::Applied(Object::Pod(pod.clone()))));
    pod
}

#[test]
fn name_01_every_spelling_is_one_volume_and_one_attach() {
    let mut desk = Desk::new();
    desk.add_in_tree_claim("v2", "aws://unknown/vol-01");
    desk.add_in_tree_claim("v3", "aws:///vol-01");
    for (pod, v) in [("a", "v1"), ("b", "v2"), ("c", "v3")] {
        desk.add_pod(pod, "n1", &[v]);
    }
    desk.in_use("n1", &["v1"]);
    desk.run(s(60));
    desk.assert_count("create", 1);
    desk.assert_count("attach v", 1);
    desk.assert_count("attach v1 i1", 1);
}

#[test]
fn name_03_a_migrated_volume_is_listed_under_its_csi_name() {
    let mut desk = Desk::new();
    desk.add_in_tree_claim("v2", "aws://z1/vol-01");
    desk.add_pod("b", "n1", &["v2"]);
    desk.run(s(30));
    let listed: Vec<_> = desk.node("n1").volumes_attached.keys().map(|name| name.to_string()).collect();
    assert_eq!(listed, ["kubernetes.io/csi/ebs.csi.aws.com^vol-01"]);
}

#[test]
fn name_04_an_inline_volume_is_found_again_under_the_name_it_was_attached_by() {
    let mut desk = Desk::new();
    let pod = inline_pod(&mut desk, "n1", "aws://z1/vol-01");
    desk.run(s(1));
    desk.in_use("n1", &["v1"]);
    desk.run(s(20));
    desk.expect(&["create v1 n1", "attach v1 i1 xvdaa", "attached v1 n1 xvdaa", "list n1 [v1]"]);
    let va = desk.va("v1", "n1").unwrap();
    assert_eq!(va.name, attachment("v1", "n1"));
    assert_eq!(va.source, AttachmentSource::Inline { driver: DriverName::ebs(), handle: key("v1").handle });
    desk.kill();
    desk.other_pods.clear();
    desk.tell(EventKind::Watch(WatchEvent::Deleted(ObjectKey::Pod(pod.key, pod.uid))));
    desk.in_use("n1", &[]);
    desk.lead();
    desk.list_everything();
    desk.run(s(120));
    desk.expect(&["list n1 []", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
    assert!(desk.is_all_gone("v1"));
}

#[test]
fn name_07_the_name_of_a_node_is_not_trusted_even_if_it_looks_like_an_instance() {
    let mut desk = Desk::new();
    add_odd_node(&mut desk, "i-02", "aws:///z1/i-03", "i-03");
    desk.ec2.add_running_instance(desk.now, instance("i3"), attachd::model::ids::InstanceType::new("m5.large"), zone());
    desk.add_pod("a", "i-02", &["v1"]);
    desk.run_to("attach v1 i3", s(20));
}

#[test]
fn name_07_nothing_is_attached_while_provider_id_and_csi_node_disagree() {
    let mut desk = Desk::new();
    desk.csi("n1", "i2");
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(120));
    desk.expect(&[]);
    assert!(desk.count("event FailedAttachVolume") >= 1, "{}", desk.story());
    desk.csi("n1", "i1");
    desk.run_to("attach v1 i1", s(20));
}

#[test]
fn name_07_a_detach_names_the_instance_that_was_frozen() {
    let mut desk = Desk::using_v1();
    desk.csi("n1", "i2");
    desk.end_pod("a", "n1");
    desk.run(s(300));
    // Absence is evidence only from a Node whose providerID and CSINode name that instance.
    desk.expect(&[]);
    desk.csi("n1", "i1");
    desk.run(s(30));
    desk.expect(&["list n1 []", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
}

const NOT_INSTANCES: [&str; 3] = [
    "aws:///us-east-9a/0f1e2d3c-aaaa/fargate-ip-10-0-0-1.us-east-9.compute.internal",
    "eks-hybrid:///us-east-9/c1/n3",
    "eks:///us-east-9/c1/i-0bb23",
];

#[test]
fn name_09_name_10_input_13_nodes_that_are_no_instances_are_left_alone_with_one_clear_event() {
    for provider_id in NOT_INSTANCES {
        let mut desk = Desk::new();
        desk.add_volume("v2");
        add_odd_node(&mut desk, "n3", provider_id, "n3");
        desk.add_pod("a", "n3", &["v1"]);
        desk.add_pod("b", "n1", &["v2"]);
        desk.run_to("attach v2 i1", s(20));
        desk.run(s(120));
        assert!(desk.va("v1", "n3").is_none());
        desk.assert_never("attach v1");
        desk.assert_count("event FailedAttachVolume", 1);
    }
}

#[test]
fn name_12_upper_case_is_refused_rather_than_guessed() {
    let mut desk = Desk::new();
    let upper = [(DriverName::ebs(), "I-01".into())].into();
    desk.api.put_csi_node(CsiNode { name: node("n1"), drivers: upper, ebs_allocatable: None });
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(120));
    desk.expect(&[]);
    assert!(matches!(ProviderId::parse("aws:///z1/I-01"), Some(ProviderId::Other(_))));
}

#[test]
fn name_13_a_node_whose_plugin_is_not_up_yet_is_waited_for_quietly() {
    let mut desk = Desk::new();
    desk.api.put_csi_node(CsiNode { name: NodeName::new("n1"), drivers: Default::default(), ebs_allocatable: None });
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(300));
    desk.expect(&[]);
    desk.assert_never("event");
    desk.csi("n1", "i1");
    desk.run_to("attach v1 i1", s(10));
}

#[test]
fn i_16_of_the_provider_ids_people_posted_only_instances_are_instances() {
    for (text, id) in [
        ("aws:///us-east-9a/i-0bb23", "i-0bb23"),
        ("i-0bb23", "i-0bb23"),
        ("aws:///us-west-9-lax-1a/i-0bb23", "i-0bb23"),
        ("aws:///us-gov-west-1a/i-0bb23", "i-0bb23"),
        ("aws:///cn-north-1b/i-0bb23", "i-0bb23"),
    ] {
        assert_eq!(ProviderId::parse(text).unwrap().instance().unwrap().text(), id, "{text}");
    }
    for text in NOT_INSTANCES {
        assert_eq!(ProviderId::parse(text).unwrap().instance(), None, "{text}");
    }
    assert_eq!(ProviderId::parse(""), None);
}

#[test]
fn name_06_an_instance_of_another_network_with_the_same_private_name_is_never_asked_about() {
    let mut desk = Desk::new();
    // i9 is in EC2 and in no Node: the API that looks instances up by `private-dns-name` would find two.
    let kind = attachd::model::ids::InstanceType::new("m5.large");
    desk.ec2.add_running_instance(desk.now, instance("i9"), kind, zone());
    desk.add_node("ip-10-0-0-1.ec2.internal", "i3");
    desk.add_pod("a", "ip-10-0-0-1.ec2.internal", &["v1"]);
    desk.run_to("attach v1 i3", s(10));
    desk.run(s(60));
    let asked = desk.sent.iter().filter(|sent| sent.text.starts_with("describe-instances"));
    assert!(asked.clone().count() > 0 && asked.clone().all(|sent| !sent.text.contains("i9")), "{}", desk.story());
}

//! The everyday: a pod comes, a pod moves, a pod goes.

use attachd::sim::ec2::Ec2Fault;

use super::desk::{Desk, s};

#[test]
fn a_pod_comes_and_its_volume_is_attached_in_the_order_of_rule_5() {
    let mut desk = Desk::new();
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(1));
    desk.in_use("n1", &["v1"]);
    desk.run(s(10));
    desk.expect(&["protect pv-v1", "create v1 n1", "attach v1 i1 xvdaa", "attached v1 n1 xvdaa", "list n1 [v1]"]);
    desk.run(s(600));
    desk.expect(&[]);
}

#[test]
fn a_pod_goes_and_its_volume_is_detached_in_the_order_of_rule_6() {
    let mut desk = Desk::using_v1();
    desk.remove_pod("a");
    desk.run(s(5));
    desk.expect(&[]);
    desk.in_use("n1", &[]);
    desk.run(s(30));
    desk.expect(&["list n1 []", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
    assert!(desk.is_all_gone("v1"));
    desk.run(s(600));
    desk.expect(&[]);
}

#[test]
fn a_volume_that_is_coming_off_the_other_node_is_no_multi_attach_news_until_it_takes_too_long() {
    let mut desk = Desk::using_v1();
    desk.ec2.inject(Ec2Fault::SlowDetach(s(900)));
    desk.end_pod("a", "n1");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(s(250));
    desk.assert_never("event FailedAttachVolume");
    desk.run(s(100));
    desk.assert_count("event FailedAttachVolume", 1);
}

#[test]
fn a_volume_that_is_held_on_the_other_node_is_multi_attach_news_after_fifteen_seconds() {
    let mut desk = Desk::using_v1();
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(s(14));
    desk.assert_never("event FailedAttachVolume");
    desk.run(s(3));
    desk.assert_count("event FailedAttachVolume", 1);
}

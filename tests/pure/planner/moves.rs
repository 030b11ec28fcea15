//! The everyday: a pod comes, a pod moves, a pod goes.

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
    let mut desk = Desk::new();
    desk.use_volume("a", "n1", "v1");
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

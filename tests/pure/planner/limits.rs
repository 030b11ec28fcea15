//! Cases LIMIT: an instance takes no more volumes. EC2 decides that, no count of ours.

use attachd::controller::command::BudgetClass;
use attachd::model::ids::InstanceType;
use attachd::model::time::Monotonic;

use super::desk::{Desk, Reply, s};
use super::short::{instance, volume, zone};

/// How many volumes an m5.large takes besides its root.
const SLOTS: usize = 26;
/// The longest wait between two tries of what only time or a person mends.
const SLOWEST_TRY: u64 = 300;

/// n3, an m5.large, and volumes up to `last`.
fn small_node(last: usize) -> Desk {
    let mut desk = Desk::new();
    desk.ec2.add_running_instance(desk.now, instance("i3"), InstanceType::new("m5.large"), zone());
    desk.add_node("n3", "i3");
    for v in 2..=last {
        desk.add_volume(&format!("v{v}"));
    }
    desk
}

/// Pods `a1` to `a<count>` on n3 use v1 to v<count>.
fn use_volumes(desk: &mut Desk, count: usize) {
    let names = names(1, count);
    for v in &names {
        desk.add_pod(&pod(v), "n3", &[v]);
    }
    desk.run(s(5));
    report_in_use(desk, &names);
    desk.run_until(s(60), "all listed", |desk| names.iter().all(|v| desk.lists("n3", v)));
    desk.take_mutations();
}

/// The kubelet of n3 reports exactly these in use.
fn report_in_use(desk: &mut Desk, names: &[String]) {
    desk.in_use("n3", &names.iter().map(String::as_str).collect::<Vec<_>>());
}

fn names(first: usize, last: usize) -> Vec<String> {
    (first..=last).map(|v| format!("v{v}")).collect()
}

fn pod(v: &str) -> String {
    v.replacen('v', "a", 1)
}

fn gaps(times: &[Monotonic]) -> Vec<u64> {
    times.windows(2).map(|pair| pair[1].saturating_since(pair[0]).as_secs()).collect()
}

/// Nobody's pod is told of a volume that hangs: EC2 has it nowhere, and the object says why.
#[track_caller]
fn assert_refused(desk: &mut Desk, v: &str) {
    assert!(desk.is_free(v), "{}", desk.story());
    let status = &desk.va(v, "n3").unwrap().status;
    let error = status.attach_error.as_ref().unwrap_or_else(|| panic!("no error\n{}", desk.story()));
    assert_eq!((error.code, status.attached), (Some(8), false));
}

#[test]
fn limit_01_one_more_than_the_instance_takes_is_refused_aloud_and_disturbs_nobody() {
    let mut desk = small_node(SLOTS + 2);
    use_volumes(&mut desk, SLOTS);
    desk.add_pod("more", "n3", &["v27"]);
    desk.run_to("attach-error v27 n3 8", s(5));
    desk.run(s(10));
    assert_refused(&mut desk, "v27");
    assert!(desk.waits("v27", "n3").contains("AttachmentLimitExceeded"), "{}", desk.story());
    desk.add_pod("elsewhere", "n2", &["v28"]);
    desk.run_to("attached v28 n2", s(10));
    desk.run(s(300));
    for v in names(1, SLOTS) {
        assert!(desk.is_attached(&v, "i3") && desk.lists("n3", &v), "{v}\n{}", desk.story());
        desk.assert_count(&format!("attach {v} i3"), 1);
    }
    desk.assert_never("detach v");
}

#[test]
fn limit_03_a_limit_that_was_reached_by_others_is_tried_slowly_until_they_go() {
    let mut desk = small_node(SLOTS + 1);
    let foreign = names(2, SLOTS + 1);
    for (number, v) in (b'a'..=b'z').zip(&foreign) {
        desk.attach_by_hand(v, "i3", &format!("/dev/xvdc{}", char::from(number)));
    }
    desk.add_pod("a1", "n3", &["v1"]);
    desk.run(s(1500));
    assert_refused(&mut desk, "v1");
    let gaps = gaps(&desk.times("attach v1"));
    assert!(gaps[0] >= 20 && gaps.windows(2).all(|pair| pair[1] >= pair[0]), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap <= SLOWEST_TRY), "{gaps:?}");
    desk.detach_by_hand("v2", "i3");
    desk.run_until(s(SLOWEST_TRY + 10), "attached", |desk| desk.count("attached v1 n3") == 1);
    desk.run(s(1));
    assert!(desk.va("v1", "n3").unwrap().status.attach_error.is_none());
    desk.assert_never("detach v");
}

#[test]
fn limit_03_a_slot_that_is_freed_is_taken_at_once_however_long_the_instance_was_full() {
    let mut desk = small_node(SLOTS + 1);
    use_volumes(&mut desk, SLOTS);
    desk.add_pod("waits", "n3", &["v27"]);
    desk.run(s(1500));
    assert_refused(&mut desk, "v27");
    let last = *desk.times("attach v27").last().unwrap();
    // Just asked: by its delays alone it would not be again for minutes.
    desk.run_until(s(SLOWEST_TRY), "asked again", |desk| *desk.times("attach v27").last().unwrap() > last);
    desk.remove_pod("a1");
    report_in_use(&mut desk, &names(2, SLOTS));
    desk.run_to("detach v1 i3", s(5));
    desk.run_to("attach v27 i3", s(6));
    desk.run(s(15));
    assert!(desk.is_attached("v27", "i3") && desk.lists("n3", "v27"), "{}", desk.story());
    assert!(desk.va("v27", "n3").unwrap().status.attach_error.is_none());
}

#[test]
fn limit_03_a_full_instance_is_asked_by_one_call_for_all_who_wait_and_every_one_is_told() {
    let mut desk = small_node(SLOTS + 6);
    use_volumes(&mut desk, SLOTS);
    let waiting = names(SLOTS + 1, SLOTS + 6);
    for v in &waiting {
        desk.add_pod(&pod(v), "n3", &[v]);
    }
    desk.run(s(30 * 60));
    for v in &waiting {
        assert_refused(&mut desk, v);
    }
    let asked: usize = waiting.iter().map(|v| desk.count(&format!("attach {v} "))).sum();
    // All at once, then after 30 s, 1, 2, 4 and every 5 min.
    assert!(asked <= waiting.len() + 12, "{asked}\n{}", desk.story());
    // Two go: two come, and nobody asks in vain.
    for v in ["v1", "v2"] {
        desk.remove_pod(&pod(v));
    }
    report_in_use(&mut desk, &names(3, SLOTS));
    let before = desk.count("attach v");
    desk.run(s(25));
    let came = waiting.iter().filter(|v| desk.is_attached(v, "i3")).count();
    assert_eq!((came, desk.count("attach v") - before), (2, 2), "{}", desk.story());
}

#[test]
fn limit_03_where_one_comes_in_unasked_for_the_others_follow() {
    let mut desk = small_node(SLOTS);
    use_volumes(&mut desk, SLOTS - 3);
    // Of nobody here: that they go is not seen before the next try.
    let foreign = names(50, 52);
    for (number, v) in (b'a'..=b'c').zip(&foreign) {
        desk.ec2.add_available_volume(desk.now, volume(v), zone(), false);
        desk.attach_by_hand(v, "i3", &format!("/dev/xvdc{}", char::from(number)));
    }
    let waiting = names(SLOTS - 2, SLOTS);
    for v in &waiting {
        desk.add_pod(&pod(v), "n3", &[v]);
    }
    desk.run(s(600));
    for v in &foreign {
        desk.detach_by_hand(v, "i3");
    }
    desk.run_until(s(SLOWEST_TRY + 10), "one is attached", |desk| desk.count("attached v") > SLOTS - 3);
    desk.run(s(30));
    for v in &waiting {
        assert!(desk.is_attached(v, "i3"), "{v}\n{}", desk.story());
    }
}

#[test]
fn limit_04_no_count_on_any_object_keeps_a_volume_from_an_instance_that_takes_it() {
    // More than any count that is put on Nodes (39) or CSINodes (25) for machines such as i1, which takes 127.
    let mut desk = Desk::new();
    let names = names(1, 45);
    for v in &names[1..] {
        desk.add_volume(v);
    }
    for v in &names {
        desk.add_pod(&pod(v), "n1", &[v]);
    }
    desk.run(s(60));
    for v in &names {
        assert!(desk.is_attached(v, "i1"), "{v}\n{}", desk.story());
        desk.assert_count(&format!("attach {v} i1"), 1);
    }
}

#[test]
fn limit_07_the_volume_that_leaves_a_full_instance_makes_room_for_the_one_that_comes() {
    let mut desk = small_node(SLOTS + 1);
    use_volumes(&mut desk, SLOTS);
    desk.remove_pod("a1");
    report_in_use(&mut desk, &names(2, SLOTS));
    desk.add_pod("comes", "n3", &["v27"]);
    desk.run_to("detach v1 i3", s(5));
    let leaves = desk.now.monotonic;
    desk.run_until(s(40), "attached", |desk| desk.count("attached v27 n3") == 1);
    assert!(desk.va("v1", "n3").is_none() && desk.is_free("v1"), "{}", desk.story());
    // One that was refused is tried again after 30 s at most, when EC2 has long freed the slot; and it hangs nowhere.
    let tries = desk.times("attach v27");
    assert!(tries.len() <= 2 && *tries.last().unwrap() > leaves + s(3), "{}", desk.story());
    desk.assert_count("detach v", 1);
}

#[test]
fn limit_07_an_attach_above_the_count_of_the_csi_node_waits_while_a_detach_there_is_open() {
    let mut desk = small_node(SLOTS + 2);
    desk.count_slots("n3", "i3", SLOTS as u32);
    use_volumes(&mut desk, SLOTS);
    desk.answer("detach v1 i3", Reply::Hold);
    desk.remove_pod("a1");
    report_in_use(&mut desk, &names(2, SLOTS));
    desk.run_to("detach v1 i3", s(5));
    desk.add_pod("comes", "n3", &["v27"]);
    desk.run(s(5));
    assert!(desk.waits("v27", "n3").contains("is detached"), "{}", desk.story());
    assert!(desk.va("v27", "n3").unwrap().status.attach_error.is_none());
    desk.assert_never("attach v27");
    desk.release_honestly("detach v1 i3");
    desk.run_until(s(15), "attached", |desk| desk.count("attached v27 n3") == 1);
    desk.assert_count("attach v27", 1);
    // No detach is open: a count refuses nothing, EC2 does.
    desk.add_pod("more", "n3", &["v28"]);
    desk.run_to("attach v28 i3", s(5));
    desk.run(s(5));
    assert_refused(&mut desk, "v28");
    desk.count_slots("n3", "i3", SLOTS as u32 + 1);
    desk.run_to("attach v28 i3", s(2));
}

#[test]
fn rule_15_a_detach_frees_what_a_blocked_attach_needs() {
    let mut desk = small_node(SLOTS + 1);
    use_volumes(&mut desk, SLOTS);
    desk.add_pod("waits", "n3", &["v27"]);
    desk.run(s(60));
    for v in ["v1", "v2"] {
        desk.remove_pod(&pod(v));
    }
    report_in_use(&mut desk, &names(3, SLOTS));
    desk.run_to("detach v1 i3", s(5));
    assert_eq!(class_of(&desk, "detach v1 i3"), BudgetClass::Frees);
    desk.run_until(s(15), "attached", |desk| desk.count("attached v27 n3") == 1);
    desk.remove_pod("a3");
    report_in_use(&mut desk, &names(4, SLOTS));
    desk.run_to("detach v3 i3", s(20));
    assert_eq!(class_of(&desk, "detach v3 i3"), BudgetClass::Detach, "nobody waits any more");
}

fn class_of(desk: &Desk, prefix: &str) -> BudgetClass {
    desk.sent.iter().rfind(|sent| sent.text.starts_with(prefix)).unwrap().command.class
}

#[test]
fn limit_10_leftovers_of_ours_are_led_out_and_make_room_and_the_others_are_reported() {
    let mut desk = small_node(SLOTS + 1);
    use_volumes(&mut desk, 4);
    let foreign = names(5, SLOTS);
    for (number, v) in (b'a'..=b'z').zip(&foreign) {
        desk.attach_by_hand(v, "i3", &format!("/dev/xvdc{}", char::from(number)));
    }
    desk.kill();
    for v in names(1, 4) {
        desk.remove_pod(&pod(&v));
    }
    report_in_use(&mut desk, &[]);
    // Of the fourth only the node's list is left.
    desk.strip_va("v4", "n3");
    desk.delete_va("v4", "n3");
    desk.lead();
    desk.list_everything();
    desk.add_pod("comes", "n3", &["v27"]);
    desk.run_until(s(100), "attached", |desk| desk.count("attached v27 n3") == 1);
    // Nobody watched the object of the fourth go: only another boot shows that it is mounted nowhere.
    desk.run(s(700));
    assert!(desk.marks("n3", "v4").is_some() && desk.is_attached("v4", "i3"), "{}", desk.story());
    desk.boot("n3", "another boot");
    desk.run(s(100));
    for v in names(1, 4) {
        assert!(desk.is_all_gone(&v), "{v}\n{}", desk.story());
    }
    desk.assert_count("detach v", 4);
    for v in &foreign {
        assert!(desk.is_attached(v, "i3"), "{v}");
    }
    desk.assert_count("event ForeignAttachment", foreign.len());
}

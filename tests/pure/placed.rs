//! Every fault at every step of every small world, each alone: no invariant breaks, and what is healed comes to rest.
//!
//! Every pair: `attachd simulate placed --pairs`.

use attachd::controller::policy::Policy;
use attachd::sim::faults::Specification;
use attachd::sim::faults::placement::{Profile, run};
use attachd::sim::scenarios::small::SmallWorld;

fn every_single_fault(world: &str) {
    let bare = Specification::bare(world);
    let fault_free = run(&bare, &Policy::FULL, false, |_| ()).expect("a small world").expect("it runs");
    assert_eq!(fault_free.violations, [], "without faults");
    let profile = Profile::of(bare, &Policy::FULL).expect("a small world").expect("it is sound");
    let (mut runs, mut failed) = (0, Vec::new());
    for specification in profile.placements() {
        let Some(report) = run(&specification, &Policy::FULL, false, |_| ()).expect("a placement") else { continue };
        runs += 1;
        if let Some(violation) = report.violations.first() {
            failed.push(format!("attachd simulate --place {specification}\n    {violation}"));
        }
    }
    assert!(runs > 1_000, "{world}: only {runs} placements");
    assert!(failed.is_empty(), "{} of {runs}:\n{}", failed.len(), failed[..failed.len().min(5)].join("\n"));
}

macro_rules! small_worlds {
    ($($test:ident: $world:literal;)*) => {
        $(
            #[test]
            fn $test() {
                every_single_fault($world);
            }
        )*

        #[test]
        fn no_small_world_is_left_out() {
            let tested = [$($world),*];
            assert!(SmallWorld::ALL.iter().all(|world| tested.contains(&world.name)));
        }
    };
}

small_worlds! {
    a_pod_that_moves: "move";
    two_pods_that_overlap: "overlap";
    two_pods_and_an_ec2_that_keeps_no_order: "multi-attach";
    a_workload_scaled_to_zero_and_back: "delete";
    a_pod_that_is_force_deleted: "force-delete";
    a_pod_that_comes_back: "recreate";
    a_node_that_returns: "node-returns";
    a_leader_that_changes: "leader-change";
    an_instance_that_is_terminated: "terminated";
    an_instance_that_is_stopped: "stopped";
    a_kubelet_that_dies_alone: "kubelet-dead";
    a_machine_that_hangs: "hung";
    a_pod_that_goes_while_its_volume_comes: "short";
    a_pod_that_comes_back_while_its_volume_goes: "comes-back";
    a_leader_that_is_cut_off: "cut-off";
    a_kubelet_that_is_down: "kubelet-down";
    an_ec2_that_ignores_device_names: "device-ignored";
    a_volume_of_another_driver: "other-driver";
    a_pod_that_moves_beside_kubernetes_own_controller: "ordered-move";
    a_pod_that_is_force_deleted_beside_kubernetes_own_controller: "ordered-force-delete";
    an_object_that_a_person_deletes_beside_kubernetes_own_controller: "ordered-by-a-person";
    an_instance_that_is_terminated_beside_kubernetes_own_controller: "ordered-terminated";
}

#[test]
fn what_is_scripted_of_faults_holds_as_it_is() {
    for world in SmallWorld::SCRIPTED {
        let bare = Specification::bare(world.name);
        let report = run(&bare, &Policy::FULL, false, |_| ()).expect("a small world").expect("it runs");
        assert_eq!(report.violations, [], "{}", world.name);
    }
}

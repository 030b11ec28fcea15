//! What the stack attachd replaces was measured to do in the same situation: kube-controller-manager, csi-attacher and the
//! EBS CSI driver, all real (`docs/testing.md` names versions and bench).
//!
//! Upstream is not simulated here: its figures are said in the timeline at their moments, and set beside ours in the
//! summary. Must never state a figure that was not measured.

use std::time::Duration;

use crate::sim::driver::{Measures, Moment};

/// Upstream in the situation of a scenario.
#[derive(Debug)]
pub struct Upstream {
    /// Said in the timeline.
    pub remarks: &'static [(Moment, &'static str)],
    /// What is compared, as a heading of a few words.
    pub compared: &'static str,
    /// Upstream's figure.
    pub measured: &'static str,
    /// Ours, from a run.
    pub ours: fn(&Measures) -> String,
}

const fn start(secs: u64) -> Moment {
    Moment::Start(Duration::from_secs(secs))
}

const fn replacement(secs: u64) -> Moment {
    Moment::Replacement(Duration::from_secs(secs))
}

pub(super) static INSTANCE_TERMINATED: Upstream = Upstream {
    remarks: &[
        (
            replacement(0),
            "would now wait six minutes: it does not ask EC2 whether the instance is gone, only whether its kubelet \
             reported the volume unused",
        ),
        (replacement(30), "would wait on, the volume free in EC2 all the while"),
        (replacement(368), "would have the pod running now: 368 s after it was made (measured)"),
    ],
    compared: "pod made anew → running",
    measured: "368 s",
    ours: longest_restart,
};

pub(super) static STOPPED: Upstream = Upstream {
    remarks: &[
        (replacement(0), "would now wait six minutes: to it a stopped instance is a node that does not answer"),
        (replacement(373), "would have the pod running now: 373 s after it was made (measured)"),
    ],
    compared: "pod made anew → running",
    measured: "373 s",
    ours: longest_restart,
};

pub(super) static KUBELET_DEAD: Upstream = Upstream {
    remarks: &[
        (replacement(0), "would start its six minutes now: it cannot tell a dead kubelet from a dead machine"),
        (
            replacement(361),
            "would call DetachVolume now, 361 s after the pod was made, while the volume is mounted and written to \
             (measured); EC2 shows it busy, and the pod never moves",
        ),
    ],
    compared: "DetachVolume while mounted",
    measured: "after 361 s",
    ours: |measures| match measures.detached_while_mounted {
        0 => "never".to_owned(),
        times => format!("{times} times"),
    },
};

pub(super) static SILENT_DETACH: Upstream = Upstream {
    remarks: &[
        (start(90), "would notice nothing: it believes its VolumeAttachment and never asks EC2"),
        (start(150), "would still show the volume attached: no status, event, metric or call (measured over 180 s)"),
        (replacement(0), "would never start this pod: the node lists a volume that is not there (measured)"),
    ],
    compared: "detach → noticed",
    measured: "never",
    ours: |measures| longest(&measures.notice_times),
};

pub(super) static STALE_READS: Upstream = Upstream {
    remarks: &[(start(75), "settles too where EC2's reads lag behind (measured)")],
    compared: "pod made anew → running",
    measured: "settles, not timed",
    ours: longest_restart,
};

pub(super) static API_OUTAGE: Upstream = Upstream {
    remarks: &[(
        start(362),
        "would come back one volume at a time, each after a back-off that has grown: 110 s after eight HTTP 500s in a row \
         (measured)",
    )],
    compared: "EC2 back → all run",
    measured: "110 s after 8 × HTTP 500",
    ours: |measures| longest(&measures.times_since_outage),
};

fn longest_restart(measures: &Measures) -> String {
    longest(&measures.restart_times)
}

fn longest(times: &[Duration]) -> String {
    times.iter().max().map_or_else(|| "never".to_owned(), |longest| format!("{:.1} s", longest.as_secs_f64()))
}

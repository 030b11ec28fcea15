//! The kubelet's reports: `volumesInUse`, Ready and boot id, at the ticks of a ten-second cycle.

use std::collections::BTreeSet;
use std::time::Duration;

use super::volumes::unique_name;
use super::{Kubelet, Surroundings, Timer};
use crate::model::ids::UniqueVolumeName;
use crate::model::node::Node;
use crate::model::time::Monotonic;
use crate::sim::api_server::KubeletStatus;

impl Kubelet {
    /// What it holds in use: what pods want, unless found mounted and judged non-attachable (then only while a pod
    /// wants it), and what is attachable in its actual state.
    pub(super) fn volumes_in_use(&self) -> BTreeSet<UniqueVolumeName> {
        let Some(process) = &self.process else { return BTreeSet::new() };
        process
            .volumes
            .iter()
            .filter(|(volume, work)| (work.is_in_actual_state() && work.attachable) || self.is_wanted(volume))
            .map(|(volume, _)| unique_name(volume))
            .collect()
    }

    /// What differs from the Node it knows: what its next report would write.
    fn difference(&self, base: &Node) -> KubeletStatus {
        let in_use = self.volumes_in_use();
        KubeletStatus {
            volumes_in_use: (base.volumes_in_use != in_use).then_some(in_use),
            boot_id: (base.boot_id.as_ref() != Some(self.boot())).then(|| self.boot().clone()),
            ready: !base.ready.is_true,
        }
    }

    /// Sees to it that the next report comes when it has something to say, else at the next heartbeat.
    pub(super) fn plan_status(&mut self, at: &Surroundings<'_>) {
        let now = at.now.monotonic;
        self.unset(|timer| *timer == Timer::StatusTick);
        let Some(process) = &self.process else { return };
        // Without a Node there is nothing to report to, and nothing that would make one.
        let Some(base) = &process.node else { return };
        let differs = self.difference(base) != KubeletStatus::default();
        let unreported = self.volumes_to_verify().iter().any(|volume| !process.reported.contains(&unique_name(volume)));
        let heartbeat = process.last_report.map_or(now, |last| last + self.options.heartbeat);
        let due = if differs || unreported { now } else { heartbeat.max(now) };
        let tick = self.next_tick(due);
        self.set(tick, Timer::StatusTick);
    }

    /// The first tick of its cycle after `at`.
    fn next_tick(&self, at: Monotonic) -> Monotonic {
        let period = self.options.status_period.as_nanos().max(1);
        let since = at.since_start().as_nanos();
        let phase = self.phase.as_nanos() % period;
        let passed = (since + period - phase) / period;
        let next = passed * period + phase;
        Monotonic::new(Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX)))
    }

    /// One report. The patch is the difference to the Node its *informer* shows; where that shows none, nothing is
    /// written and what it shows counts as reported, which is wrong while the informer is behind.
    pub(super) fn status_tick(&mut self, at: &mut Surroundings<'_>) {
        let now = at.now.monotonic;
        let Some(base) = self.process.as_ref().and_then(|process| process.node.as_ref()) else { return };
        let mut status = self.difference(base);
        let in_use = self.volumes_in_use();
        let last_report = self.process.as_ref().and_then(|process| process.last_report);
        let beat = last_report.is_none_or(|last| now.saturating_since(last) >= self.options.heartbeat);
        let accepted = if status == KubeletStatus::default() && !beat {
            true
        } else if self.partitioned {
            false
        } else {
            status.ready = true;
            at.api.patch_by_kubelet(at.now, &self.name, &status).is_ok()
        };
        let Some(process) = &mut self.process else { return };
        if accepted {
            process.reported = in_use;
            if status != KubeletStatus::default() || beat {
                process.last_report = Some(now);
            }
        }
        for volume in self.volumes_to_verify() {
            self.verify(&volume, at);
        }
        self.plan_status(at);
    }
}

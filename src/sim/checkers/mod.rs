//! What must hold in the modelled world whatever the core does: the oracles of the simulator and of the tests on real
//! servers.
//!
//! Flow: a driver (the simulator's, or a test on real servers) keeps a [`world::World`] up to date and shows it to
//! [`Checker::look`] after each step; at a quiet end [`rest::check_rest`] compares what is wanted with what is there.
//! Owns the memory that comparing two looks needs, and nothing else. Must never see a command of the core: what counts
//! is what happened, not what was asked for.

mod calls;
mod invariant;
mod lists;
mod memory;
mod mounts;
mod objects;
pub mod rest;
mod sending;
mod sends;
mod volumes;
pub mod wanted;
pub mod world;

pub use invariant::{Invariant, Violation};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::ids::{AttachmentName, AwsVolumeId, NodeName};
use crate::model::time::Monotonic;
use memory::Memory;
use world::World;

/// Everything is looked at again this often, touched or not: what only time makes wrong would be missed otherwise.
const EVERYTHING_EVERY: Duration = Duration::from_secs(60);

/// Looks at the world after each step. Work is proportional to what the step touched.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    memory: Memory,
    everything_at: Monotonic,
    found: BTreeSet<(Invariant, String)>,
    checked: BTreeMap<Invariant, u64>,
}

impl Checker {
    /// A checker that has seen nothing yet. The first look takes the world as it is for its starting point.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at the world after a step: what was newly found broken. The same breach of the same things is told once.
    pub fn look(&mut self, world: &World) -> Vec<Violation> {
        let everything = world.touched.everything || world.now.monotonic >= self.everything_at;
        if everything {
            self.everything_at = world.now.monotonic + EVERYTHING_EVERY;
        }
        let scope = Scope::of(world, &self.memory, everything);
        let mut found = Findings { at: world.now.monotonic, violations: Vec::new(), checked: &mut self.checked };
        // The order matters: fences and objects of this look excuse, or explain, what ended in it.
        self.memory.see_objects(world, &scope);
        mounts::check(&mut self.memory, world, &scope, &mut found);
        volumes::check(&mut self.memory, world, &scope, &mut found);
        lists::check(&self.memory, world, &scope, &mut found);
        objects::check(&self.memory, world, &scope, &mut found);
        sending::check(world, &mut found);
        calls::check(&mut self.memory, world, &mut found);
        let violations = found.violations;
        self.memory.remember(world, &scope);
        violations.into_iter().filter(|v| self.found.insert((v.invariant, v.about.clone()))).collect()
    }

    /// How often each invariant was judged.
    pub fn checked(&self) -> &BTreeMap<Invariant, u64> {
        &self.checked
    }
}

/// What one look has to judge.
struct Scope {
    volumes: Vec<AwsVolumeId>,
    nodes: Vec<NodeName>,
    attachments: Vec<AttachmentName>,
}

impl Scope {
    /// What is only remembered belongs to everything too: it may be gone.
    fn of(world: &World, memory: &Memory, everything: bool) -> Self {
        if everything {
            let nodes: BTreeSet<_> = world.nodes.keys().chain(memory.nodes.keys()).collect();
            let attachments: BTreeSet<_> = world.attachments.keys().chain(memory.attachments.keys()).collect();
            return Self {
                volumes: world.volumes.keys().cloned().collect(),
                nodes: nodes.into_iter().cloned().collect(),
                attachments: attachments.into_iter().cloned().collect(),
            };
        }
        Self {
            volumes: world.touched.volumes.iter().cloned().collect(),
            nodes: world.touched.nodes.iter().cloned().collect(),
            attachments: world.touched.attachments.iter().cloned().collect(),
        }
    }
}

/// Where checkers put what they find.
struct Findings<'a> {
    at: Monotonic,
    violations: Vec<Violation>,
    checked: &'a mut BTreeMap<Invariant, u64>,
}

impl Findings<'_> {
    /// Judges an invariant once: it holds, or `tell` says what broke it and about what.
    fn judge(&mut self, invariant: Invariant, holds: bool, tell: impl FnOnce() -> (String, String)) {
        *self.checked.entry(invariant).or_default() += 1;
        if !holds {
            let (about, detail) = tell();
            self.violations.push(Violation { invariant, at: self.at, about, detail });
        }
    }
}

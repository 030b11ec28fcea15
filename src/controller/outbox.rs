//! Commands on their way out, what each was for, and who waits for a token.
//!
//! Flow: a state machine that wants to send asks [`Outbox::ask`] for its turn; `plan` grants turns as tokens come, the
//! machine is then driven again and, if it still wants to, pushes its command. So nothing is decided while it waits.

use std::collections::{BTreeMap, VecDeque};

use super::actual::slot::WriteKind;
use super::budget::Budget;
use super::command::{BudgetClass, Call, Command, CommandId};
use super::event::Term;
use super::leadership::Permit;
use super::queue::Queue;
use super::syncer::batch::Read;
use crate::model::device::DeviceName;
use crate::model::ids::{NodeName, PersistentVolumeName, VolumeKey};
use crate::model::time::Monotonic;

/// Who asks for a token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The slot of a volume on a node.
    Slot(VolumeKey, NodeName),
    /// The finalizer of a PersistentVolume.
    PersistentVolume(VolumeKey, PersistentVolumeName),
    /// The list of a node.
    Node(NodeName),
    /// The live reads of a node.
    LiveReads(NodeName),
    /// The next PersistentVolume to be told where it can be used.
    Placement,
    /// The next describe call.
    Describe,
    /// The next call of a sweep.
    Sweep,
    /// The next event.
    Event,
}

/// What a command under way was for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pending {
    /// AttachVolume.
    Attach {
        /// The volume.
        volume: VolumeKey,
        /// The node.
        node: NodeName,
        /// The device asked for.
        device: DeviceName,
    },
    /// DetachVolume.
    Detach {
        /// The volume.
        volume: VolumeKey,
        /// The node.
        node: NodeName,
    },
    /// A write on behalf of a slot.
    Write {
        /// The volume.
        volume: VolumeKey,
        /// The node.
        node: NodeName,
        /// Which.
        kind: WriteKind,
    },
    /// The finalizer of a PersistentVolume that is being deleted, or a read to settle it.
    PersistentVolume {
        /// The volume.
        volume: VolumeKey,
        /// The PersistentVolume.
        name: PersistentVolumeName,
    },
    /// Where a PersistentVolume of the volume can be used.
    Placement(VolumeKey),
    /// A nodes/status patch.
    NodePatch(NodeName),
    /// A live GET of a Node to refresh what is known.
    NodeRefresh(NodeName),
    /// A live GET of a Node before a removal.
    LiveNode(NodeName),
    /// A live LIST of pods before a removal.
    LivePods(NodeName),
    /// A page of a bulk read.
    Read(Read),
    /// An Event.
    Event,
}

/// Commands and turns.
#[derive(Debug)]
pub struct Outbox {
    next_id: u64,
    ready: VecDeque<Command>,
    pending: BTreeMap<CommandId, (BudgetClass, Pending)>,
    turns: Queue<Target>,
    granted: Option<(BudgetClass, Target)>,
    /// The budgets.
    pub budget: Budget,
}

impl Outbox {
    /// An empty one.
    pub fn new(budget: Budget) -> Self {
        Self {
            next_id: 1,
            ready: VecDeque::new(),
            pending: BTreeMap::new(),
            turns: Queue::default(),
            granted: None,
            budget,
        }
    }

    /// Whether it is `target`'s turn in `class`. If not, it now waits for one.
    pub fn ask(&mut self, class: BudgetClass, target: Target, now: Monotonic) -> bool {
        if self.granted.as_ref().is_some_and(|(c, t)| *c == class && *t == target) {
            self.granted = None;
            return true;
        }
        self.turns.submit(class, target, now);
        false
    }

    /// Grants the next turn for which there is a token.
    pub fn grant(&mut self) -> Option<Target> {
        self.granted = None;
        let (class, target) = self.turns.pop_ready(&mut self.budget)?;
        self.granted = Some((class, target.clone()));
        Some(target)
    }

    /// The turn that was granted is used.
    pub fn use_turn(&mut self) {
        self.granted = None;
    }

    /// Whether anything waits in a class.
    pub fn waits(&self, class: BudgetClass) -> bool {
        self.turns.waiting(class) > 0
    }

    /// When the next token for a waiting turn is there.
    pub fn next_turn(&self) -> Option<Monotonic> {
        self.turns.next_ready(&self.budget)
    }

    /// A mutating command.
    pub fn push(&mut self, class: BudgetClass, permit: Permit, call: Call, pending: Pending) -> CommandId {
        self.push_command(class, permit.term, permit.not_after, call, pending)
    }

    /// A read.
    pub fn push_read(&mut self, class: BudgetClass, term: Term, call: Call, pending: Pending) -> CommandId {
        self.push_command(class, term, None, call, pending)
    }

    fn push_command(
        &mut self,
        class: BudgetClass,
        term: Term,
        not_after: Option<Monotonic>,
        call: Call,
        pending: Pending,
    ) -> CommandId {
        let id = CommandId(self.next_id);
        self.next_id += 1;
        self.ready.push_back(Command { id, term, not_after, class, call });
        self.pending.insert(id, (class, pending));
        id
    }

    /// The next command to start.
    pub fn pop(&mut self) -> Option<Command> {
        self.ready.pop_front()
    }

    /// What the command was for; it has had its outcome.
    pub fn settle(&mut self, id: CommandId) -> Option<(BudgetClass, Pending)> {
        self.pending.remove(&id)
    }

    /// Commands without an outcome yet.
    pub fn in_flight(&self) -> impl Iterator<Item = &Pending> {
        self.pending.values().map(|(_, pending)| pending)
    }
}

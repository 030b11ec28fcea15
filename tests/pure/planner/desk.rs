//! A desk for trying the core: the real [`Controller`] in front of the simulator's models of the API server and EC2, in
//! virtual time.
//!
//! Every command is answered honestly by the models after [`HOP`], unless the test scripted another [`Reply`]; each gets
//! exactly one outcome. Commands are written in short (`attach v1 i1 xvdaa`), so that a test can say exactly which come.
//! `v1` is vol-01, `n1` a node on `i1`, which is i-01.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use attachd::controller::Controller;
use attachd::controller::command::{Call, Command, KubernetesCall};
use attachd::controller::event::{Event, EventKind, Guard, GuardChange, Kind, Object, Term, WatchEvent};
use attachd::controller::policy::{Policy, Settings};
use attachd::model::claim::{AccessMode, PersistentVolume, PersistentVolumeSource, Placement};
use attachd::model::ids::{DriverName, ResourceVersion, Uid, VolumeHandle};
use attachd::model::outcome::{Answer, CallResult, Outcome, classify_ec2, classify_kubernetes};
use attachd::model::pod::Pod;
use attachd::model::time::{Monotonic, Now, Wall};
use attachd::sim::api_server::{Api, kind_of, kind_of_object};
use attachd::sim::checkers::world::Actor;
use attachd::sim::ec2::{Ec2Model, Ec2Options, Span, Throttling};

use super::short::{key, node, pv_name, short, volume};

/// From the core to a model, and from there back.
pub const HOP: Duration = Duration::from_millis(20);
/// After this a call without an answer is given up.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Seconds.
pub const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How a command is answered other than honestly.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Not yet: the test answers by [`Desk::release_honestly`].
    Hold,
    /// With this result, and without any effect.
    Is(CallResult),
    /// Carried out, but the answer never comes.
    LostAnswer,
    /// Never arrives.
    Lost,
    /// Given up, and carried out this long after its send.
    Late(Duration),
}

/// EC2 refuses with this code.
pub fn ec2_says(code: &str, message: &str) -> Reply {
    Reply::Is(classify_ec2(code, message))
}

/// The API server refuses with this status.
pub fn api_says(code: u16, reason: &str, message: &str) -> Reply {
    Reply::Is(classify_kubernetes(code, reason, message))
}

/// One command that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Monotonic,
    pub text: String,
    pub command: Command,
}

impl Sent {
    /// Whether it changes anything; an Event does not.
    pub fn is_mutation(&self) -> bool {
        match &self.command.call {
            Call::Ec2(call) => call.is_mutating(),
            Call::Kubernetes(call) => call.is_mutating() && !self.text.starts_with("event "),
        }
    }
}

/// What is under way between the core and the models.
#[derive(Debug)]
enum Due {
    Arrive { epoch: u64, began: Now, command: Box<Command>, answered: Answered },
    Come { epoch: u64, outcome: Outcome },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answered {
    Yes,
    No,
}

pub struct Desk {
    pub core: Controller,
    pub api: Api,
    pub ec2: Ec2Model,
    pub now: Now,
    /// Every command sent so far, in order.
    pub sent: Vec<Sent>,
    /// Pods that only the test knows how to make.
    pub other_pods: Vec<Pod>,
    settings: Settings,
    policy: Policy,
    epoch: u64,
    under_way: BTreeMap<(Monotonic, u64), Due>,
    order: u64,
    scripts: Vec<(String, Reply)>,
    standing: Vec<(String, Reply)>,
    held: Vec<(Now, Command, String)>,
    slow: BTreeSet<Kind>,
    backlog: Vec<(Kind, WatchEvent)>,
    taken: usize,
}

impl Desk {
    /// Nodes n1 and n2, volume v1, every watch synced, leading for as long as the process lives.
    pub fn new() -> Self {
        Self::with(Settings::default(), Policy::FULL)
    }

    /// The same, and v1 in use by pod `a` on n1.
    pub fn using_v1() -> Self {
        let mut desk = Self::new();
        desk.use_volume("a", "n1", "v1");
        desk
    }

    pub fn with(settings: Settings, policy: Policy) -> Self {
        let mut desk = Self::bare(settings, policy);
        desk.lead();
        desk.list_everything();
        desk.run(s(1));
        desk
    }

    /// The same, but the core was told nothing yet.
    pub fn bare(settings: Settings, policy: Policy) -> Self {
        let options = Ec2Options {
            attaching: Span::fixed(s(2)),
            detaching: Span::fixed(s(3)),
            throttling: Throttling::Off,
            ..Ec2Options::default()
        };
        let mut desk = Self {
            core: Controller::new(settings.clone(), policy.clone()),
            api: Api::new(),
            ec2: Ec2Model::new(options, 1),
            now: Now { monotonic: Monotonic::new(s(1000)), wall: Wall::from_millis(1_900_000_000_000) },
            sent: Vec::new(),
            other_pods: Vec::new(),
            settings,
            policy,
            epoch: 1,
            under_way: BTreeMap::new(),
            order: 0,
            scripts: Vec::new(),
            standing: Vec::new(),
            held: Vec::new(),
            slow: BTreeSet::new(),
            backlog: Vec::new(),
            taken: 0,
        };
        desk.add_node("n1", "i1");
        desk.add_node("n2", "i2");
        desk.add_volume("v1");
        desk.api.take_changes();
        desk
    }

    /// Leading begins now and ends with the process.
    pub fn lead(&mut self) {
        self.guard(None);
    }

    /// Leading, surely ours for `lasts`.
    pub fn guard(&mut self, lasts: Option<Duration>) {
        let until = lasts.map(|lasts| self.now.monotonic + lasts);
        let guard = Some(Guard { term: Term(self.epoch), since: self.now.monotonic, until });
        self.tell_guard(guard);
    }

    pub fn tell_guard(&mut self, guard: Option<Guard>) {
        for role in self.settings.roles.clone() {
            self.tell(EventKind::Guard(GuardChange { role, guard }));
        }
    }

    pub fn tell(&mut self, kind: EventKind) {
        self.core.ingest(Event { at: self.now, kind });
    }

    /// A complete list of every kind.
    pub fn list_everything(&mut self) {
        self.api.take_changes();
        for kind in Kind::ALL {
            self.list(kind);
        }
    }

    pub fn list(&mut self, kind: Kind) {
        let generation = self.now.monotonic.since_start().as_millis() as u64;
        self.tell(EventKind::Watch(WatchEvent::Begin { kind, generation }));
        let mut objects = self.api.list(kind);
        if kind == Kind::Pod {
            objects.extend(self.other_pods.iter().cloned().map(Object::Pod));
        }
        for object in objects {
            self.tell(EventKind::Watch(WatchEvent::Item { generation, object }));
        }
        self.tell(EventKind::Watch(WatchEvent::End { kind, generation }));
    }

    /// The process dies and another takes the lease at once. Calls under way still arrive.
    pub fn restart(&mut self) {
        self.kill();
        self.lead();
        self.list_everything();
    }

    /// The process dies; the next one was told nothing yet.
    pub fn kill(&mut self) {
        self.epoch += 1;
        self.held.clear();
        self.backlog.clear();
        self.core = Controller::new(self.settings.clone(), self.policy.clone());
    }

    // What comes next is how commands are answered.

    /// The next command whose text begins so is answered by `reply`.
    pub fn answer(&mut self, prefix: &str, reply: Reply) {
        self.scripts.push((prefix.to_owned(), reply));
    }

    /// Every command whose text begins so is answered by `reply`, until [`Self::forget_answers`].
    pub fn answer_all(&mut self, prefix: &str, reply: Reply) {
        self.standing.push((prefix.to_owned(), reply));
    }

    /// From now on every command is answered honestly.
    pub fn forget_answers(&mut self) {
        self.scripts.clear();
        self.standing.clear();
    }

    /// Answers the command held longest whose text begins so, honestly.
    pub fn release_honestly(&mut self, prefix: &str) {
        let at = self.held.iter().position(|(_, _, text)| text.starts_with(prefix));
        let Some(at) = at else { panic!("nothing held begins with {prefix:?}\n{}", self.story()) };
        let (began, command, _) = self.held.remove(at);
        self.carry(began, command, None);
    }

    /// Watch events of this kind are kept back.
    pub fn slow_watch(&mut self, kind: Kind) {
        self.slow.insert(kind);
    }

    /// What was kept back comes now.
    pub fn catch_up(&mut self) {
        self.slow.clear();
        for (_, event) in std::mem::take(&mut self.backlog) {
            self.tell(EventKind::Watch(event));
        }
    }

    fn carry(&mut self, began: Now, command: Command, reply: Option<Reply>) {
        let epoch = self.epoch;
        let outcome = |result, ended| Outcome { id: command.id, began, ended, result };
        let (arrives, comes) = (self.now.plus(HOP), self.now.plus(HOP * 2));
        let given_up = self.now.plus(TIMEOUT);
        let no_answer = || outcome(CallResult::Uncertain("timeout".into()), given_up);
        match reply {
            Some(Reply::Hold) => {
                let text = short(&command.call);
                self.held.push((began, command, text));
            }
            Some(Reply::Is(result)) => {
                let outcome = outcome(result, comes);
                self.put(comes, Due::Come { epoch, outcome });
            }
            Some(Reply::Lost) => {
                let outcome = no_answer();
                self.put(given_up, Due::Come { epoch, outcome });
            }
            Some(Reply::LostAnswer) => {
                let outcome = no_answer();
                self.put(given_up, Due::Come { epoch, outcome });
                let command = Box::new(command);
                self.put(arrives, Due::Arrive { epoch, began, command, answered: Answered::No });
            }
            Some(Reply::Late(after)) => {
                let outcome = no_answer();
                self.put(given_up, Due::Come { epoch, outcome });
                let command = Box::new(command);
                self.put(self.now.plus(after), Due::Arrive { epoch, began, command, answered: Answered::No });
            }
            None => {
                let command = Box::new(command);
                self.put(arrives, Due::Arrive { epoch, began, command, answered: Answered::Yes });
            }
        }
    }

    fn put(&mut self, at: Now, due: Due) {
        self.order += 1;
        self.under_way.insert((at.monotonic, self.order), due);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Come { epoch, outcome } => {
                if epoch == self.epoch {
                    self.tell(EventKind::Outcome(outcome));
                }
            }
            Due::Arrive { epoch, began, command, answered } => {
                let result = self.apply(epoch, &command.call);
                if answered == Answered::Yes {
                    let ended = self.now.plus(HOP);
                    let outcome = Outcome { id: command.id, began, ended, result };
                    self.put(ended, Due::Come { epoch, outcome });
                }
            }
        }
    }

    fn apply(&mut self, epoch: u64, call: &Call) -> CallResult {
        match call {
            Call::Ec2(call) => self.ec2.call(self.now, call),
            Call::Kubernetes(call) => {
                let result = self.api.call(self.now, Actor::Attachd(Term(epoch)), call);
                match result {
                    CallResult::Done(Answer::Pods(mut pods)) => {
                        if let KubernetesCall::ListPods { node } = call {
                            pods.extend(self.other_pods.iter().filter(|p| p.node.as_ref() == Some(node)).cloned());
                        }
                        CallResult::Done(Answer::Pods(pods))
                    }
                    other => other,
                }
            }
        }
    }

    // Time.

    /// Lets `time` pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.now.monotonic + time;
        self.run_while(end, |_| true);
    }

    /// Lets time pass until a command beginning so is sent (again), at most `within`.
    pub fn run_to(&mut self, prefix: &str, within: Duration) {
        let before = self.count(prefix);
        let end = self.now.monotonic + within;
        self.run_while(end, |desk| desk.count(prefix) == before);
        assert!(self.count(prefix) > before, "no {prefix:?} within {within:?}\n{}", self.story());
    }

    /// Lets time pass until `done`, at most `within`.
    pub fn run_until(&mut self, within: Duration, what: &str, done: impl Fn(&Self) -> bool) {
        let end = self.now.monotonic + within;
        self.run_while(end, |desk| !done(desk));
        assert!(done(self), "not {what} within {within:?}\n{}", self.story());
    }

    fn run_while(&mut self, end: Monotonic, go_on: impl Fn(&Self) -> bool) {
        let mut turns_without_time = 0;
        loop {
            self.deliver();
            self.plan();
            if !go_on(self) {
                return;
            }
            let wake = self.core.next_wake().map(|wake| wake.at);
            let due = self.under_way.keys().next().map(|(at, _)| *at);
            let Some(next) = wake.into_iter().chain(due).min().filter(|next| *next <= end) else {
                self.now = self.now.plus(end.saturating_since(self.now.monotonic));
                return;
            };
            turns_without_time = if next <= self.now.monotonic { turns_without_time + 1 } else { 0 };
            let why = self.core.next_wake().map(|wake| wake.why);
            assert!(turns_without_time < 100, "time stands still: {why:?}\n{}", self.story());
            self.now = self.now.plus(next.saturating_since(self.now.monotonic));
            while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now.monotonic) {
                let due = entry.remove();
                self.happen(due);
            }
        }
    }

    /// Tells the core what changed in the API server.
    pub fn deliver(&mut self) {
        for change in self.api.take_changes() {
            let (kind, event) = match (change.deleted(), change.after) {
                (Some(key), _) => (kind_of(&key), WatchEvent::Deleted(key)),
                (None, Some(object)) => (kind_of_object(&object), WatchEvent::Applied(object)),
                (None, None) => continue,
            };
            if self.slow.contains(&kind) {
                self.backlog.push((kind, event));
            } else {
                self.tell(EventKind::Watch(event));
            }
        }
    }

    /// One plan, and every command of it on its way.
    pub fn plan(&mut self) {
        self.core.plan(self.now);
        let broken = self.core.broken_invariants();
        assert!(broken.is_empty(), "{broken:?}\n{}", self.story());
        while let Some(command) = self.core.poll_command() {
            let text = short(&command.call);
            self.sent.push(Sent { at: self.now.monotonic, text: text.clone(), command: command.clone() });
            let script = self.scripts.iter().position(|(prefix, _)| text.starts_with(prefix.as_str()));
            let standing = self.standing.iter().find(|(prefix, _)| text.starts_with(prefix.as_str()));
            let standing = standing.map(|(_, reply)| reply.clone());
            let reply = script.map(|at| self.scripts.remove(at).1).or(standing);
            self.carry(self.now, command, reply);
        }
    }

    // What was sent.

    /// How many commands beginning so were sent since the start.
    pub fn count(&self, prefix: &str) -> usize {
        self.sent.iter().filter(|sent| sent.text.starts_with(prefix)).count()
    }

    /// When commands beginning so were sent.
    pub fn times(&self, prefix: &str) -> Vec<Monotonic> {
        self.sent.iter().filter(|sent| sent.text.starts_with(prefix)).map(|sent| sent.at).collect()
    }

    /// The mutations (Events excepted) sent since this was last asked.
    pub fn take_mutations(&mut self) -> Vec<String> {
        let new = self.sent[self.taken..].iter().filter(|sent| sent.is_mutation());
        let texts = new.map(|sent| sent.text.clone()).collect();
        self.taken = self.sent.len();
        texts
    }

    /// Exactly these mutations were sent since last asked.
    #[track_caller]
    pub fn expect(&mut self, mutations: &[&str]) {
        let taken = self.take_mutations();
        assert_eq!(taken, mutations, "\n{}", self.story());
    }

    /// None that begins so was sent since the start.
    #[track_caller]
    pub fn assert_never(&self, prefix: &str) {
        assert_eq!(self.count(prefix), 0, "{prefix:?} was sent\n{}", self.story());
    }

    #[track_caller]
    pub fn assert_count(&self, prefix: &str, count: usize) {
        assert_eq!(self.count(prefix), count, "{prefix:?}\n{}", self.story());
    }

    /// The run so far, for a failing test.
    pub fn story(&self) -> String {
        let mut lines = String::new();
        for sent in &self.sent {
            lines.push_str(&format!("{} {}\n", sent.at, sent.text));
        }
        lines.push_str(&format!("now {}\n", self.now.monotonic));
        for waiting in self.core.waiting() {
            lines.push_str(&format!("waiting: {} on {}: {}\n", waiting.volume, waiting.node, waiting.why));
        }
        lines
    }

    /// Why the volume waits on the node.
    pub fn waits(&self, v: &str, n: &str) -> String {
        let waiting = self.core.waiting();
        let found = waiting.into_iter().find(|w| w.volume == key(v) && w.node == node(n));
        found.map(|w| w.why).unwrap_or_default()
    }
}

/// A PersistentVolume of an EBS volume, as the provisioner makes it.
pub fn persistent_volume(v: &str) -> PersistentVolume {
    PersistentVolume {
        name: pv_name(v),
        uid: Uid::new("set on create"),
        resource_version: ResourceVersion::new(""),
        deleting: false,
        finalizers: Vec::new(),
        claim: None,
        source: PersistentVolumeSource::Csi {
            driver: DriverName::ebs(),
            handle: VolumeHandle::new(volume(v).text()),
            attributes: BTreeMap::new(),
        },
        access_modes: [AccessMode::ReadWriteOnce].into(),
        block: false,
        placement: Placement { zone: None, region: None, has_affinity: true },
    }
}

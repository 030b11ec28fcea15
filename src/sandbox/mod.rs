//! `attachd sandbox`: the EC2 model behind EC2's own HTTP API, so that attachd and any AWS client can be tried without
//! an AWS account.
//!
//! Flow: a request's form fields (`query`) go to an action (`volumes`, `instances`) on the one model, whose answer goes
//! out as EC2's XML (`xml`). Owns nothing but the HTTP face, real time and the control endpoint: what EC2 does and
//! refuses is decided in [`crate::sim::ec2`]. Signatures are not checked; actions that only set up a world draw from no
//! bucket; tags are accepted and forgotten.

mod control;
mod exchange;
mod filters;
mod instances;
mod names;
mod query;
mod server;
mod volumes;
mod xml;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use smol_str::SmolStr;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::model::ids::{InstanceType, Zone};
use crate::model::time::{Monotonic, Now, Wall};
use crate::sim::ec2::{Ec2Error, Ec2Model, Ec2Options};
use control::{Counts, WireFault, WireFaultKind};
use exchange::Exchange;
use query::Fields;

/// What the sandbox starts with.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// How its EC2 behaves.
    pub ec2: Ec2Options,
    /// Seed of the model's chance.
    pub seed: u64,
    /// The region; its zones are `a`, `b` and `c`.
    pub region: String,
    /// Type of the instances that run from the start.
    pub instance_type: InstanceType,
    /// How many instances run from the start, in the first zone.
    pub instances: u32,
    /// How many volumes are available from the start, in the first zone.
    pub volumes: u32,
}

impl Default for SandboxOptions {
    fn default() -> Self {
        Self {
            ec2: Ec2Options::default(),
            seed: 0,
            region: "us-east-1".to_owned(),
            instance_type: InstanceType::new("m7i.large"),
            instances: 0,
            volumes: 0,
        }
    }
}

/// A running EC2; clones are the same one.
#[derive(Clone, Debug)]
pub struct Sandbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    started: Instant,
    region: String,
    model: Mutex<Ec2Model>,
    counts: Mutex<Counts>,
    wire_faults: Mutex<Vec<WireFault>>,
    requests: AtomicU64,
    shutdown: CancellationToken,
}

impl Sandbox {
    /// An EC2 with the instances and volumes of the options in it.
    pub fn new(options: SandboxOptions) -> Self {
        let started = Instant::now();
        let mut model = Ec2Model::new(options.ec2, options.seed);
        let zone = Zone::new(format!("{}a", options.region));
        let now = now_since(started);
        for _ in 0..options.instances {
            let id = model.new_instance_id();
            model.add_running_instance(now, id, options.instance_type.clone(), zone.clone());
        }
        for _ in 0..options.volumes {
            let id = model.new_volume_id();
            model.add_available_volume(now, id, zone.clone(), false);
        }
        let shared = Shared {
            started,
            region: options.region,
            model: Mutex::new(model),
            counts: Mutex::default(),
            wire_faults: Mutex::default(),
            requests: AtomicU64::new(0),
            shutdown: CancellationToken::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Answers requests until `shutdown` is ready, then finishes what is under way.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()> + Send) -> std::io::Result<()> {
        let stopping = self.shared.shutdown.clone();
        let server = axum::serve(listener, server::router(self.clone()))
            .with_graceful_shutdown(stopping.clone().cancelled_owned());
        let mut server = std::pin::pin!(server.into_future());
        tokio::select! {
            ended = &mut server => ended,
            () = shutdown => {
                stopping.cancel();
                server.await
            }
        }
    }

    /// The model, brought up to now: for tests that look at the truth or act as people do.
    pub fn with_model<T>(&self, act: impl FnOnce(&mut Ec2Model, Now) -> T) -> T {
        let now = now_since(self.shared.started);
        let mut model = lock(&self.shared.model);
        model.advance(now);
        act(&mut model, now)
    }

    fn with_exchange<T>(
        &self,
        fields: &Fields,
        act: impl FnOnce(&mut Exchange<'_>) -> Result<T, Ec2Error>,
    ) -> Result<T, Ec2Error> {
        let region = &self.shared.region;
        self.with_model(|model, now| act(&mut Exchange { model, now, region, fields }))
    }

    fn next_request_id(&self) -> String {
        let number = self.shared.requests.fetch_add(1, Ordering::Relaxed);
        format!("00000000-0000-4000-8000-{number:012x}")
    }

    fn count(&self, action: &str, ended: SmolStr) {
        let mut counts = lock(&self.shared.counts);
        *counts.entry(SmolStr::new(action)).or_default().entry(ended).or_default() += 1;
    }

    fn counts(&self) -> Counts {
        lock(&self.shared.counts).clone()
    }

    fn add_wire_fault(&self, fault: WireFault) {
        lock(&self.shared.wire_faults).push(fault);
    }

    fn take_wire_fault(&self, action: &str) -> Option<WireFaultKind> {
        let mut faults = lock(&self.shared.wire_faults);
        let index = faults.iter().position(|fault| fault.action == action && fault.left > 0)?;
        let kind = faults[index].kind;
        faults[index].left -= 1;
        if faults[index].left == 0 {
            faults.remove(index);
        }
        Some(kind)
    }

    fn heal(&self) {
        lock(&self.shared.wire_faults).clear();
        self.with_model(|model, _| model.heal());
    }

    async fn until_shutdown(&self, longest: Duration) {
        tokio::select! {
            () = tokio::time::sleep(longest) => {}
            () = self.shared.shutdown.cancelled() => {}
        }
    }
}

/// A [`Sandbox`] of these options, answering on the listener until `shutdown` is ready.
pub async fn serve(
    options: SandboxOptions,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) -> std::io::Result<()> {
    Sandbox::new(options).serve(listener, shutdown).await
}

/// A panic while the lock was held has already been answered; the model is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_since(started: Instant) -> Now {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
    Now { monotonic: Monotonic::new(started.elapsed()), wall: Wall::from_millis(millis) }
}

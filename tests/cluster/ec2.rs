//! EC2's stand-in: attachd's own sandbox, served from this process. attachd speaks to it over HTTP as it speaks to EC2;
//! the tests and their kubelets look at the model behind it and hold volumes as a guest does.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use attachd::model::device::DeviceName;
use attachd::model::ids::{AwsVolumeId, InstanceId, InstanceType, Zone};
use attachd::model::time::{Monotonic, Now};
use attachd::model::volume::{AttachmentState, CheckStatus, InstanceState};
use attachd::sandbox::{Sandbox, SandboxOptions};
use attachd::sim::ec2::{Attachment, CallCounts, Caller, Ec2Action, Ec2Options, EndCause, Throttling};

use crate::local_ec2::{JSON, request};

/// How fast EC2 is, and what attachd may ask of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// EC2 as it is: 50 mutating calls at once, then 5 a second; attachd with its defaults.
    Real,
    /// Latencies a tenth, rates tenfold, attachd's budgets with them.
    TenTimes,
    /// As ten times, and EC2 throttles nothing: attachd's budget for the API server, at its default, is what is left.
    Unthrottled,
}

impl Pace {
    /// The section of attachd.yaml that goes with it, behind `endpoint` and `region` of `ec2`.
    pub(crate) fn budgets(self) -> &'static str {
        match self {
            Self::Real => "",
            // The milliseconds that one request takes longer than another are ten times as many tokens at ten times the
            // rate; the smaller burst leaves room for them.
            Self::TenTimes => {
                "  mutatingBurst: 40\n  mutatingPerSecond: 50\n  describePerSecond: 20\napi:\n  writesBurst: 500\n  writesPerSecond: 500\n"
            }
            Self::Unthrottled => "  mutatingBurst: 10000\n  mutatingPerSecond: 1000\n  describePerSecond: 20\n",
        }
    }

    fn options(self) -> Ec2Options {
        match self {
            Self::Real => Ec2Options::default(),
            Self::TenTimes => Ec2Options::default().faster(10.0),
            Self::Unthrottled => Ec2Options { throttling: Throttling::Off, ..Ec2Options::default().faster(10.0) },
        }
    }
}

/// A running EC2; it ends when this is dropped. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Ec2 {
    sandbox: Sandbox,
    address: SocketAddr,
    _stop: Arc<DropGuard>,
}

impl Ec2 {
    /// Starts it on a thread of its own: what the tests do must not slow it.
    pub(crate) fn start(pace: Pace) -> Self {
        let sandbox = Sandbox::new(SandboxOptions { ec2: pace.options(), ..SandboxOptions::default() });
        let stop = CancellationToken::new();
        let (tell, told) = mpsc::channel();
        let (served, stopped) = (sandbox.clone(), stop.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
                tell.send(listener.local_addr().expect("its port")).expect("the test waits");
                served.serve(listener, stopped.cancelled_owned()).await.expect("serve EC2");
            });
        });
        let address = told.recv().expect("EC2 listens");
        Self { sandbox, address, _stop: Arc::new(stop.drop_guard()) }
    }

    /// Its endpoint.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The model behind it.
    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Adds a running instance.
    pub(crate) fn add_instance(&self, id: &InstanceId, instance_type: &str, zone: &str) {
        let (instance_type, zone) = (InstanceType::new(instance_type), Zone::new(zone));
        self.sandbox.with_model(|model, now| model.add_running_instance(now, id.clone(), instance_type, zone));
    }

    /// Adds an available volume.
    pub(crate) fn add_volume(&self, id: &AwsVolumeId, zone: &str) {
        self.sandbox.with_model(|model, now| model.add_available_volume(now, id.clone(), Zone::new(zone), false));
    }

    /// Adds an attachment that has been there for long.
    pub(crate) fn add_attached(&self, instance: &InstanceId, volume: &AwsVolumeId, device: &DeviceName) {
        let attached =
            self.sandbox.with_model(|model, now| model.add_attached(now, &Caller::Unnamed, volume, instance, device));
        attached.unwrap_or_else(|error| panic!("attach {volume} to {instance}: {error:?}"));
    }

    /// A guest opens or closes the volume's device.
    pub(crate) fn set_guest_holds(&self, instance: &InstanceId, volume: &AwsVolumeId, holds: bool) {
        self.sandbox.with_model(|model, now| model.set_guest_holds(now, instance, volume, holds));
    }

    /// The attachment of a volume to an instance, if it is `attached` and nobody has asked for its end.
    pub(crate) fn attached(&self, instance: &InstanceId, volume: &AwsVolumeId) -> Option<Attachment> {
        self.sandbox.with_model(|model, _| {
            let attachments = model.volume(volume)?.attachments();
            let attachment = attachments.iter().find(|attachment| attachment.instance == *instance)?;
            (attachment.state == AttachmentState::Attached).then(|| attachment.clone())
        })
    }

    /// Ends an instance (TerminateInstances): `shutting-down` for a while, then `terminated`.
    pub(crate) fn terminate(&self, id: &InstanceId) {
        self.sandbox.with_model(|model, now| model.terminate(now, id).expect("terminate an instance"));
    }

    /// Stops an instance (StopInstances): `stopping` for a while, then `stopped`.
    pub(crate) fn stop(&self, id: &InstanceId) {
        self.sandbox.with_model(|model, now| model.stop(now, id).expect("stop an instance"));
    }

    /// A person detaches a volume at the console and forces it.
    pub(crate) fn force_detach_by_hand(&self, instance: &InstanceId, volume: &AwsVolumeId) {
        self.sandbox.with_model(|model, now| {
            model.force_detach_by_hand(now, volume, instance).expect("detach an attached volume");
        });
    }

    /// What the status checks of an instance find from now on.
    pub(crate) fn set_checks(&self, id: &InstanceId, checks: CheckStatus) {
        self.sandbox.with_model(|model, _| model.set_checks(id, checks));
    }

    /// Since when an instance has been in this state; none if it is in another.
    pub(crate) fn in_state_since(&self, id: &InstanceId, state: &InstanceState) -> Option<Instant> {
        self.sandbox.with_model(|model, now| {
            let instance = model.instance(id).filter(|instance| instance.state() == state)?;
            Some(instant(now, instance.since()))
        })
    }

    /// When the attachment that the volume has to this instance was asked for, whatever its state.
    pub(crate) fn attach_requested(&self, instance: &InstanceId, volume: &AwsVolumeId) -> Option<Instant> {
        self.sandbox.with_model(|model, now| Some(instant(now, model.volume(volume)?.attachment(instance)?.requested)))
    }

    /// The state of the attachment that the volume has to this instance.
    pub(crate) fn attachment_state(&self, instance: &InstanceId, volume: &AwsVolumeId) -> Option<AttachmentState> {
        self.sandbox.with_model(|model, _| Some(model.volume(volume)?.attachment(instance)?.state.clone()))
    }

    /// The next call of an action is carried out, and answered this much later.
    pub(crate) async fn delay_next(&self, action: Ec2Action, by: Duration) {
        let (action, millis) = (action.name(), by.as_millis());
        let fault = format!(r#"{{"fault": "delay", "action": "{action}", "millis": {millis}, "count": 1}}"#);
        let (status, text) = request(self.address, "POST", "/sandbox/faults", JSON, &fault).await;
        assert_eq!(status, 204, "{text}");
    }

    /// When attachments of the volume ended, and why; oldest first.
    pub(crate) fn ended(&self, volume: &AwsVolumeId) -> Vec<(Instant, EndCause)> {
        self.sandbox.with_model(|model, now| {
            let of_volume = model.ended().filter(|ended| ended.volume == *volume);
            of_volume.map(|ended| (instant(now, ended.at), ended.cause.clone())).collect()
        })
    }

    /// How the calls of an action ended, so far.
    pub(crate) fn counts(&self, action: Ec2Action) -> CallCounts {
        self.sandbox.with_model(|model, _| model.counts().get(&action).copied().unwrap_or_default())
    }
}

/// A moment of the model, on the clock of the test.
fn instant(now: Now, at: Monotonic) -> Instant {
    Instant::now() - now.monotonic.saturating_since(at)
}

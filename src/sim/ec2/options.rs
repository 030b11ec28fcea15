//! What kind of EC2 is modelled: latencies, limits, buckets, and the choices AWS leaves open.
//!
//! Plain data, set before the model starts; what is switched on and off while it runs is a fault (`fault.rs`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::controller::policy::Bucket;
use crate::model::ids::InstanceType;
use crate::sim::dice::Dice;

/// A duration drawn evenly between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Shortest.
    pub min: Duration,
    /// Longest.
    pub max: Duration,
}

impl Span {
    /// Between two numbers of milliseconds.
    pub const fn millis(min: u64, max: u64) -> Self {
        Self { min: Duration::from_millis(min), max: Duration::from_millis(max) }
    }

    /// Always the same.
    pub const fn fixed(duration: Duration) -> Self {
        Self { min: duration, max: duration }
    }

    pub(super) fn draw(self, dice: &mut Dice) -> Duration {
        dice.between(self.min, self.max)
    }

    fn divided_by(self, factor: f64) -> Self {
        Self { min: self.min.div_f64(factor), max: self.max.div_f64(factor) }
    }
}

/// Token buckets of the account and region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Throttling {
    /// No call is refused for rate.
    Off,
    /// As EC2 documents them.
    Buckets {
        /// AttachVolume, DetachVolume and ModifyVolume together.
        mutating: Bucket,
        /// Describe calls that are filtered or paged.
        describe: Bucket,
        /// Describe calls that are neither.
        unfiltered: Bucket,
    },
}

impl Throttling {
    /// The defaults of an account: 50/5, 100/20, 50/10. AWS documents the mutating limit per action, the EBS CSI driver
    /// found it shared by all of them; the stricter reading is modelled.
    pub const AWS: Self = Self::Buckets {
        mutating: Bucket { burst: 50, per_second: 5.0 },
        describe: Bucket { burst: 100, per_second: 20.0 },
        unfiltered: Bucket { burst: 50, per_second: 10.0 },
    };

    fn times(self, factor: f64) -> Self {
        let faster = |bucket: Bucket| Bucket { burst: bucket.burst, per_second: bucket.per_second * factor };
        match self {
            Self::Off => Self::Off,
            Self::Buckets { mutating, describe, unfiltered } => {
                Self::Buckets { mutating: faster(mutating), describe: faster(describe), unfiltered: faster(unfiltered) }
            }
        }
    }
}

/// What DetachVolume does when volume and instance match an attachment but `Device` does not. AWS does not say; the
/// core must be safe either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongDevice {
    /// InvalidAttachment.NotFound.
    Refused,
    /// The name is ignored, the attachment is detached.
    Ignored,
}

/// What an instance type takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeLimits {
    /// Attachments it takes, the root volume among them.
    pub attachments: u32,
    /// EBS cards; with more than one, each takes an equal share of the attachments.
    pub cards: u32,
}

impl TypeLimits {
    /// A Nitro instance of the sixth generation or earlier: 28 slots shared with network interfaces, one of which every
    /// instance has.
    pub const SHARED: Self = Self { attachments: 27, cards: 1 };
}

/// Reads that show the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staleness {
    /// How old an answer may be. Each volume and instance of an answer is drawn for itself.
    pub window: Duration,
    /// How often, in per cent, an entry that changed within the window is shown as it was.
    pub percent: u8,
}

impl Staleness {
    /// Every read shows the present.
    pub const NONE: Self = Self { window: Duration::ZERO, percent: 0 };
}

/// How the modelled EC2 behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Ec2Options {
    /// From the acceptance of AttachVolume to `attached`.
    pub attaching: Span,
    /// From the acceptance of DetachVolume until the device is taken away, or found busy.
    pub detaching: Span,
    /// From the guest letting go of a busy device until the attachment is gone.
    pub busy_release: Span,
    /// `creating` of a volume, and `deleting`.
    pub creating: Span,
    /// `pending` of an instance.
    pub pending: Span,
    /// `stopping`.
    pub stopping: Span,
    /// `shutting-down`.
    pub shutting_down: Span,
    /// How many of a hundred volumes of an instance that is shutting down are taken from it before it is `terminated`;
    /// the others end with it.
    pub freed_while_shutting_down: u8,
    /// From the moment a guest no longer answers (a panic, a hang) until the instance status check says `impaired`.
    pub check_fails: Span,
    /// How long the instance status check is `initializing` after a start or a reboot.
    pub check_initializes: Span,
    /// How long a terminated instance can still be described.
    pub terminated_visible: Duration,
    /// How long after its launch an instance is seen by some requests and not by others.
    pub partly_visible: Span,
    /// Token buckets.
    pub throttling: Throttling,
    /// EC2's clock ahead (positive) or behind ours, in milliseconds.
    pub clock_skew_millis: i64,
    /// DetachVolume with another Device.
    pub wrong_device: WrongDevice,
    /// A device name freed less than this ago hangs in `attaching` when it is used again on that instance; zero: never.
    pub reused_device_hangs: Duration,
    /// Stale and backward reads from the start; [`super::Ec2Fault::StaleReads`] overrides it.
    pub staleness: Staleness,
    /// `MaxResults` of the describe calls that come as [`crate::controller::command::Ec2Call`].
    pub page_size: u32,
    /// Limits by instance type; every other type has [`TypeLimits::SHARED`].
    pub types: BTreeMap<InstanceType, TypeLimits>,
    /// How many ended attachments are remembered until they are taken.
    pub ended_kept: usize,
}

impl Default for Ec2Options {
    fn default() -> Self {
        let types = [
            ("m5.large", TypeLimits::SHARED),
            ("m7i.large", TypeLimits { attachments: 32, cards: 1 }),
            ("m7i.48xlarge", TypeLimits { attachments: 128, cards: 1 }),
            ("c8gn.48xlarge", TypeLimits { attachments: 128, cards: 2 }),
        ];
        Self {
            attaching: Span::millis(2_000, 4_000),
            detaching: Span::millis(2_000, 5_000),
            busy_release: Span::millis(200, 1_000),
            creating: Span::millis(1_500, 4_000),
            pending: Span::millis(5_000, 15_000),
            stopping: Span::millis(10_000, 40_000),
            shutting_down: Span::millis(20_000, 90_000),
            freed_while_shutting_down: 50,
            check_fails: Span::millis(60_000, 180_000),
            check_initializes: Span::millis(60_000, 150_000),
            terminated_visible: Duration::from_secs(3600),
            partly_visible: Span::fixed(Duration::ZERO),
            throttling: Throttling::AWS,
            clock_skew_millis: 0,
            wrong_device: WrongDevice::Refused,
            reused_device_hangs: Duration::ZERO,
            staleness: Staleness::NONE,
            page_size: 500,
            types: types.into_iter().map(|(name, limits)| (InstanceType::new(name), limits)).collect(),
            ended_kept: 100_000,
        }
    }
}

impl Ec2Options {
    /// An EC2 that is `factor` times as fast: latencies divided, refill rates multiplied.
    pub fn faster(mut self, factor: f64) -> Self {
        for span in [
            &mut self.attaching,
            &mut self.detaching,
            &mut self.busy_release,
            &mut self.creating,
            &mut self.pending,
            &mut self.stopping,
            &mut self.shutting_down,
        ] {
            *span = span.divided_by(factor);
        }
        self.throttling = self.throttling.times(factor);
        self
    }

    /// The limits of a type.
    pub fn limits(&self, instance_type: &InstanceType) -> TypeLimits {
        self.types.get(instance_type).copied().unwrap_or(TypeLimits::SHARED)
    }
}

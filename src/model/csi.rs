//! What the Container Storage Interface names: drivers, and the volumes each of them knows by a handle.
//!
//! Flow: `ids` makes the key of a volume of both. The driver and the handles of EBS, which attachd compares without end,
//! are kept as what they are. Must never change a text it was given.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use smol_str::SmolStr;

use super::ec2_ids::AwsVolumeId;

/// The name the EBS CSI driver registers under.
pub const EBS_DRIVER: &str = "ebs.csi.aws.com";
/// What [`DriverName::attacher_finalizer`] makes of it.
const EBS_ATTACHER_FINALIZER: &str = "external-attacher/ebs-csi-aws-com";

/// Name of a CSI driver, such as `ebs.csi.aws.com`.
#[derive(Clone, PartialEq, Eq)]
pub struct DriverName(Driver);

#[derive(Clone, PartialEq, Eq)]
enum Driver {
    Ebs,
    Other(Arc<str>),
}

impl DriverName {
    /// Takes the name as it is.
    pub fn new(name: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        Self(if name == EBS_DRIVER { Driver::Ebs } else { Driver::Other(name.into()) })
    }

    /// `ebs.csi.aws.com`.
    pub fn ebs() -> Self {
        Self(Driver::Ebs)
    }

    /// Whether this is the EBS driver, whose attachments attachd makes itself.
    pub fn is_ebs(&self) -> bool {
        self.0 == Driver::Ebs
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Driver::Ebs => EBS_DRIVER,
            Driver::Other(name) => name,
        }
    }

    /// Whether it can stand in a [`super::ids::UniqueVolumeName`] and be read back.
    pub(super) fn is_part_of_a_name(&self) -> bool {
        self.is_ebs() || is_part_of_a_name(self.as_str())
    }

    /// Whether this is [`Self::attacher_finalizer`].
    pub fn is_attacher_finalizer(&self, finalizer: &str) -> bool {
        if self.is_ebs() { finalizer == EBS_ATTACHER_FINALIZER } else { finalizer == self.attacher_finalizer() }
    }

    /// The finalizer of csi-attacher for this driver, as external-attacher forms it: every character outside
    /// `[A-Za-z0-9-]` becomes `-`; a trailing `-` gets an `X`.
    pub fn attacher_finalizer(&self) -> String {
        let mut name: String =
            self.as_str().chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
        if name.ends_with('-') {
            name.push('X');
        }
        format!("external-attacher/{name}")
    }
}

impl Hash for DriverName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Ord for DriverName {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Driver::Ebs, Driver::Ebs) => Ordering::Equal,
            _ => self.as_str().cmp(other.as_str()),
        }
    }
}

impl PartialOrd for DriverName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for DriverName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for DriverName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A CSI volume handle, opaque except for EBS, where it is an [`AwsVolumeId`]. One that looks like that is kept as such,
/// whichever driver it belongs to. Ordered as text.
#[derive(Clone, PartialEq, Eq)]
pub struct VolumeHandle(Handle);

// As text, like the ids of EC2.
impl Hash for VolumeHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Handle {
    Ebs(AwsVolumeId),
    Other(SmolStr),
}

impl VolumeHandle {
    /// Takes the text as it is.
    pub fn new(text: impl AsRef<str>) -> Self {
        let text = text.as_ref();
        Self(AwsVolumeId::parse(text).map_or_else(|_| Handle::Other(SmolStr::new(text)), Handle::Ebs))
    }

    /// The text.
    pub fn text(&self) -> SmolStr {
        match &self.0 {
            Handle::Ebs(id) => id.text(),
            Handle::Other(text) => text.clone(),
        }
    }

    /// Whether it can stand in a [`super::ids::UniqueVolumeName`] and be read back: upstream requires exactly one `^`.
    pub(super) fn is_part_of_a_name(&self) -> bool {
        match &self.0 {
            Handle::Ebs(_) => true,
            Handle::Other(text) => is_part_of_a_name(text),
        }
    }

    /// The id of an EBS volume, if it looks like one.
    pub(super) fn aws_volume_id(&self) -> Option<&AwsVolumeId> {
        match &self.0 {
            Handle::Ebs(id) => Some(id),
            Handle::Other(_) => None,
        }
    }
}

impl From<&AwsVolumeId> for VolumeHandle {
    fn from(id: &AwsVolumeId) -> Self {
        Self(Handle::Ebs(id.clone()))
    }
}

impl Ord for VolumeHandle {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Handle::Ebs(id), Handle::Ebs(other)) => id.cmp(other),
            _ => self.text().cmp(&other.text()),
        }
    }
}

impl PartialOrd for VolumeHandle {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for VolumeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for VolumeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

fn is_part_of_a_name(text: &str) -> bool {
    !text.is_empty() && !text.contains('^')
}

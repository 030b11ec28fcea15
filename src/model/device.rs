//! Device names under which EBS volumes are attached, and the order in which they are offered.

use std::fmt;

use smol_str::SmolStr;

/// A block device name as EC2 knows it (`/dev/xvdba`). On NVMe instances the guest sees another name; this one is
/// still the slot's identity. `sdX` and `xvdX` are one slot: see [`DeviceName::slot`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName(SmolStr);

impl DeviceName {
    /// Takes the name as EC2 wrote it, also without `/dev/`.
    pub fn new(text: impl Into<SmolStr>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What two names have in common when EC2 or the guest takes them for one: without `/dev/`, and with `xvd` and `sd`
    /// read alike; a partition digit behind a single letter counts as the whole disk (`sda1` is the root `xvda`).
    pub fn slot(&self) -> &str {
        let name = self.0.strip_prefix("/dev/").unwrap_or(&self.0);
        let letters = name.strip_prefix("xvd").or_else(|| name.strip_prefix("sd")).unwrap_or(name);
        letters.trim_end_matches(|c: char| c.is_ascii_digit())
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Every name offered, in the order the EBS CSI driver offers them: `xvdaa`–`xvdaz`, `xvdba`–`xvdbz`, `xvdda`–`xvddx`,
/// then `xvdb`–`xvdz`, then `sdb`–`sdz`. `xvda` breaks Windows, `xvdc?` fails on some Windows types, `xvddx` is the
/// last legal one. The first 52 come first because a Xen guest, which takes at most 39, must never mix `sdX` and
/// `xvdX`. The driver's last resort `/dev/sda2` is left out: it is a partition of the root's slot.
pub fn device_names() -> impl Iterator<Item = DeviceName> {
    let double = |first: char, last: char| {
        (b'a'..=last as u8).map(move |letter| DeviceName(SmolStr::new(format!("/dev/xvd{first}{}", letter as char))))
    };
    let single = |stem: &'static str| {
        (b'b'..=b'z').map(move |letter| DeviceName(SmolStr::new(format!("/dev/{stem}{}", letter as char))))
    };
    double('a', 'z').chain(double('b', 'z')).chain(double('d', 'x')).chain(single("xvd")).chain(single("sd"))
}

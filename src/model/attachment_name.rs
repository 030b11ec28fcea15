//! Names of VolumeAttachments: nearly all of them are digests, and kept as such.
//!
//! Flow: `ids` makes the name of a key; every other name is taken as it is written. Must never order or hash two otherwise
//! than their texts, nor write one otherwise than it was read.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use smol_str::SmolStr;

use super::hex_digits::{IN_NUMBER, numbers};

/// What upstream puts before the digest.
const PREFIX: &str = "csi-";

/// Name of a VolumeAttachment. For those that attachd or upstream made: see [`AttachmentName::of`].
#[derive(Clone, PartialEq, Eq)]
pub struct AttachmentName(Name);

#[derive(Clone, PartialEq, Eq)]
enum Name {
    /// SHA-256, the most significant quarter first.
    Digest([u64; 4]),
    Other(SmolStr),
}

impl AttachmentName {
    /// Takes the text as it is.
    pub fn new(text: impl AsRef<str>) -> Self {
        let text = text.as_ref();
        Self(parse(text).map_or_else(|| Name::Other(SmolStr::new(text)), Name::Digest))
    }

    /// `csi-` and the digest.
    pub(super) fn of_digest(digest: [u8; 32]) -> Self {
        let mut quarters = [0; 4];
        for (quarter, bytes) in quarters.iter_mut().zip(digest.as_chunks::<8>().0) {
            *quarter = u64::from_be_bytes(*bytes);
        }
        Self(Name::Digest(quarters))
    }

    /// The text.
    pub fn text(&self) -> SmolStr {
        match &self.0 {
            Name::Digest([a, b, c, d]) => SmolStr::new(format!("{PREFIX}{a:016x}{b:016x}{c:016x}{d:016x}")),
            Name::Other(text) => text.clone(),
        }
    }
}

fn parse(text: &str) -> Option<[u64; 4]> {
    let digits = text.strip_prefix(PREFIX)?;
    if digits.len() == 4 * IN_NUMBER { numbers(digits) } else { None }
}

impl Ord for AttachmentName {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Name::Digest(digest), Name::Digest(other)) => digest.cmp(other),
            _ => self.text().cmp(&other.text()),
        }
    }
}

impl PartialOrd for AttachmentName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for AttachmentName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl fmt::Display for AttachmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for AttachmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_written_as_it_was_read_and_ordered_as_text() {
        let mut texts: Vec<String> =
            (0..20u32).map(|n| format!("csi-{}", format!("{:08x}", n.wrapping_mul(0x9e37_79b9)).repeat(8))).collect();
        let digest = texts[1].clone();
        texts.extend([digest.to_uppercase(), digest[..67].to_owned(), format!("{digest}0"), digest[4..].to_owned()]);
        texts.extend(["", "csi-", "csi-1", "zz"].map(str::to_owned));
        for one in &texts {
            let name = AttachmentName::new(one);
            assert_eq!(name.text(), *one);
            for other in &texts {
                assert_eq!(name.cmp(&AttachmentName::new(other)), one.cmp(other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn a_digest_is_the_name_that_its_text_is() {
        let digest: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 8).unwrap());
        let name = AttachmentName::of_digest(digest);
        assert!(name.text().starts_with("csi-00081018"), "{name}");
        assert_eq!(AttachmentName::new(name.text()), name);
    }
}

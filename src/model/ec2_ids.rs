//! The ids EC2 gives. Each kind is a type of its own.
//!
//! Flow: parsed where they come in, kept as numbers, written again where they go out. Must never accept what it would
//! write otherwise.

use std::fmt;
use std::hash::{Hash, Hasher};

use smol_str::SmolStr;

use super::hex_digits::HexDigits;

/// Why a text is not an identity of the wanted kind. Quotes the input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} is not {expected}")]
pub struct IdError {
    /// The text as given.
    pub input: String,
    /// What would have been accepted.
    pub expected: &'static str,
}

impl IdError {
    pub(super) fn new(input: &str, expected: &'static str) -> Self {
        Self { input: input.to_owned(), expected }
    }
}

macro_rules! ec2_id_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(HexDigits);

        // As text: the spread of back-offs comes from a hash, and must be the same on every machine.
        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.text().hash(state);
            }
        }

        impl $name {
            /// Parses the exact form EC2 writes: the prefix, then lower-case hexadecimal digits. Upper case is refused
            /// rather than guessed at.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                let digits = text.strip_prefix($prefix).and_then(HexDigits::parse);
                digits.map(Self).ok_or_else(|| IdError::new(text, $expected))
            }

            /// The text, as EC2 writes it.
            pub fn text(&self) -> SmolStr {
                self.0.text($prefix)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.text())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.text())
            }
        }
    };
}

ec2_id_type!(
    /// The identity of an EBS volume: `vol-` and hexadecimal digits. The same for every PersistentVolume and every
    /// spelling that names the volume.
    AwsVolumeId, "vol-", "an EBS volume id (vol- and lower-case hexadecimal digits)"
);
ec2_id_type!(
    /// The identity of an EC2 instance. Comes from a Node's providerID, from a CSINode or from the annotation of a
    /// VolumeAttachment, never from the name of a node.
    InstanceId, "i-", "an EC2 instance id (i- and lower-case hexadecimal digits)"
);

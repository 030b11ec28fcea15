//! A text that maps are searched by.
//!
//! Flow: the names in `ids` that the core looks up at every step hold one. Must never order or hash two otherwise than
//! their texts.

use std::hash::{Hash, Hasher};
use std::ops::Deref;

use smol_str::SmolStr;

/// The text with its first bytes beside it as numbers: two that differ there are told apart without reading the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SearchedText {
    head: [u64; 2],
    text: SmolStr,
}

impl From<SmolStr> for SearchedText {
    fn from(text: SmolStr) -> Self {
        // What is missing counts as zero, so a text comes before those that it begins; the rest is told by the text.
        let mut bytes = text.bytes();
        let head = [(); 2].map(|()| u64::from_be_bytes([(); 8].map(|()| bytes.next().unwrap_or(0))));
        Self { head, text }
    }
}

impl Deref for SearchedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Hash for SearchedText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_the_texts() {
        let texts = [
            "",
            "\0",
            "a",
            "a\0",
            "a\0b",
            "b",
            "ab",
            "ip-10-0-0-1",
            "ip-10-0-0-10",
            "ip-10-0-0-1.ec2.internal",
            "ip-10-0-0-1.ec2.example",
            "0123456789abcde",
            "0123456789abcdef",
            "0123456789abcdef0",
            "0123456789abcdef1",
            "0123456\u{7f}89abcdef",
            "0123456é",
            "\u{10ffff}",
        ];
        for one in texts {
            for other in texts {
                let (of_one, of_other) =
                    (SearchedText::from(SmolStr::new(one)), SearchedText::from(SmolStr::new(other)));
                assert_eq!(of_one.cmp(&of_other), one.cmp(other), "{one:?} and {other:?}");
                assert_eq!(of_one == of_other, one == other, "{one:?} and {other:?}");
            }
        }
    }
}

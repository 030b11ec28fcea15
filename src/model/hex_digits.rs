//! Hexadecimal digits of a name, as numbers: names are compared far more often than they are written.
//!
//! Flow: `ec2_ids` and `attachment_name` parse them once and write them again. Must never lose or add a digit, nor order two
//! otherwise than their texts.

use smol_str::{SmolStr, SmolStrBuilder};

/// Up to 32 lower-case hexadecimal digits, left-aligned: so they compare as their text does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HexDigits {
    high: u64,
    low: u64,
    count: u8,
}

/// Digits in one number.
pub(super) const IN_NUMBER: usize = 16;

/// One to `16 * N` lower-case hexadecimal digits, left-aligned in numbers; `None` for anything else.
pub(super) fn numbers<const N: usize>(digits: &str) -> Option<[u64; N]> {
    if digits.is_empty() || digits.len() > N * IN_NUMBER {
        return None;
    }
    let mut numbers = [0; N];
    for (at, byte) in digits.bytes().enumerate() {
        // Only what is written again: no upper case.
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        numbers[at / IN_NUMBER] |= u64::from(digit) << shift(at);
    }
    Some(numbers)
}

impl HexDigits {
    /// Exactly what [`Self::text`] writes again: upper case, nothing at all and more than 32 digits are refused.
    pub(super) fn parse(digits: &str) -> Option<Self> {
        let [high, low] = numbers(digits)?;
        Some(Self { high, low, count: u8::try_from(digits.len()).ok()? })
    }

    /// The digits with `prefix` before them.
    pub(super) fn text(&self, prefix: &str) -> SmolStr {
        let mut text = SmolStrBuilder::new();
        text.push_str(prefix);
        for at in 0..usize::from(self.count) {
            let half = if at < IN_NUMBER { self.high } else { self.low };
            text.push(char::from(b"0123456789abcdef"[(half >> shift(at)) as usize % 16]));
        }
        text.finish()
    }
}

/// Where the digit stands in its number.
fn shift(at: usize) -> usize {
    4 * (IN_NUMBER - 1 - at % IN_NUMBER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_text_is_written_again_and_ordered_as_text() {
        let whole = "0123456789abcdeffedcba9876543210";
        let mut texts: Vec<String> = (1..=32).map(|length| whole[..length].to_owned()).collect();
        texts.extend((1..=32).map(|length| whole[32 - length..].to_owned()));
        texts.extend(["0", "00", "000000000000000000", "f", "0f", "1", "10"].map(str::to_owned));
        for one in &texts {
            let digits = HexDigits::parse(one).unwrap();
            assert_eq!(digits.text(""), *one);
            for other in &texts {
                assert_eq!(digits.cmp(&HexDigits::parse(other).unwrap()), one.cmp(other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn what_could_not_be_written_again_is_refused() {
        for text in ["", "A", "g", "0x", "é", "-1", &"0".repeat(33)] {
            assert_eq!(HexDigits::parse(text).map(|digits| digits.text("")), None, "{text}");
        }
    }
}

//! The EC2 Query protocol's requests: form fields, from the body or the URL, with lists spelled `Name.1`, `Name.2`.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use crate::model::ids::{AwsVolumeId, InstanceId};
use crate::sim::ec2::Ec2Error;

/// Most filters of one request.
const MOST_FILTERS: usize = 50;
/// Most values of one filter.
const MOST_VALUES: usize = 200;

/// One request's fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(BTreeMap<String, String>);

/// A filter: its name, and the values of which one must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) name: String,
    pub(super) values: Vec<String>,
}

impl Fields {
    /// Decodes `application/x-www-form-urlencoded`, from the URL's query and the body alike.
    pub(super) fn decode(query: &str, body: &str) -> Self {
        let pairs = query.split('&').chain(body.trim_end().split('&')).filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescape(name), unescape(value))
        });
        Self(decoded.collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A field that must be there.
    pub(super) fn require(&self, name: &str) -> Result<&str, Ec2Error> {
        self.get(name)
            .ok_or_else(|| Ec2Error::new("MissingParameter", format!("The request must contain the parameter {name}")))
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u32>, Ec2Error> {
        self.get(name).map(|value| value.parse().map_err(|_| invalid(name, value, "a whole number"))).transpose()
    }

    /// The values of `name.1`, `name.2`, … in the order of their numbers.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        let numbered = |(field, value)| {
            let field: &String = field;
            let value: &String = value;
            let number = field.strip_prefix(name)?.strip_prefix('.')?.parse::<u32>().ok()?;
            Some((number, value.as_str()))
        };
        let mut values: Vec<(u32, &str)> = self.0.iter().filter_map(numbered).collect();
        values.sort_unstable();
        values.into_iter().map(|(_, value)| value).collect()
    }

    /// `Filter.N.Name` with `Filter.N.Value.M`.
    pub(super) fn filters(&self) -> Result<Vec<Filter>, Ec2Error> {
        let mut filters = Vec::new();
        for number in 1.. {
            let Some(name) = self.get(&format!("Filter.{number}.Name")) else { break };
            let values =
                self.list(&format!("Filter.{number}.Value")).into_iter().map(str::to_owned).collect::<Vec<_>>();
            if values.len() > MOST_VALUES || number > MOST_FILTERS {
                let text = format!("A request takes at most {MOST_FILTERS} filters of {MOST_VALUES} values each.");
                return Err(Ec2Error::new("FilterLimitExceeded", text));
            }
            filters.push(Filter { name: name.to_owned(), values });
        }
        Ok(filters)
    }
}

/// EC2's answer to an id that is none.
pub(super) fn volume_id(text: &str) -> Result<AwsVolumeId, Ec2Error> {
    AwsVolumeId::parse(text).map_err(|_| invalid("volumeId", text, "'vol-...'"))
}

/// EC2's answer to an id that is none.
pub(super) fn instance_id(text: &str) -> Result<InstanceId, Ec2Error> {
    let text_of = || format!("Invalid id: \"{text}\"");
    InstanceId::parse(text).map_err(|_| Ec2Error::new("InvalidInstanceID.Malformed", text_of()))
}

pub(super) fn invalid(name: &str, value: &str, expected: &str) -> Ec2Error {
    let text = format!("Value ({value}) for parameter {name} is invalid. Expected: {expected}.");
    Ec2Error::new("InvalidParameterValue", SmolStr::new(text))
}

/// Whether a filter's value, with its wildcards `*` and `?` (escaped by `\`), matches. Case counts.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    // Positions behind the last star and in the text where it was tried, to go back to.
    let (mut at, mut in_text, mut star) = (0, 0, None);
    while in_text < text.len() {
        let (step, is_match) = match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, in_text));
                at += 1;
                continue;
            }
            Some('?') => (1, true),
            Some('\\') if at + 1 < pattern.len() => (2, pattern[at + 1] == text[in_text]),
            Some(literal) => (1, *literal == text[in_text]),
            None => (0, false),
        };
        if is_match {
            at += step;
            in_text += 1;
        } else if let Some((after_star, tried)) = star {
            at = after_star;
            in_text = tried + 1;
            star = Some((after_star, in_text));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

/// Whether a filter's value means more than itself.
pub(super) fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(['*', '?', '\\'])
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_decoded_and_lists_in_their_order() {
        let body = "Action=DescribeVolumes&VolumeId.10=j&VolumeId.2=b&VolumeId.1=a%2Fx+y&Filter.1.Name=status\
                    &Filter.1.Value.1=in-use&Filter.1.Value.2=available&MaxResults=abc\n";
        let fields = Fields::decode("Version=2016-11-15&bad=%zz", body);
        assert_eq!(fields.get("Action"), Some("DescribeVolumes"));
        assert_eq!((fields.get("Version"), fields.get("bad")), (Some("2016-11-15"), Some("%zz")));
        assert_eq!(fields.list("VolumeId"), ["a/x y", "b", "j"]);
        let filter = Filter { name: "status".into(), values: vec!["in-use".into(), "available".into()] };
        assert_eq!(fields.filters().unwrap(), [filter]);
        assert!(fields.number("MaxResults").is_err());
        assert!(fields.require("InstanceId").is_err());
    }

    #[test]
    fn a_filter_takes_200_values() {
        let body = |count: usize| {
            let values = (1..=count).map(|n| format!("&Filter.1.Value.{n}=v{n}")).collect::<String>();
            format!("Filter.1.Name=volume-id{values}")
        };
        assert!(Fields::decode("", &body(200)).filters().is_ok());
        assert!(Fields::decode("", &body(201)).filters().is_err());
    }

    #[test]
    fn wildcards_match_as_ec2_says() {
        for (pattern, text) in [("*", ""), ("vol-*", "vol-1"), ("v?l-*1*", "vol-0010"), ("a\\*b", "a*b"), ("ab", "ab")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("vol-?", "vol-"), ("a\\*b", "axb"), ("AB", "ab"), ("", "a"), ("*1", "10")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}

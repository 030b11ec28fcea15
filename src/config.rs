//! The one validated [`Config`]: flag over environment over file over default.
//!
//! Flow: `attachd run` loads it once, before anything else; every other part gets plain values. Nothing else of attachd
//! reads a file or the environment (the Kubernetes client and the AWS SDK find their own credentials). Every source
//! goes through one table of keys, so that a key has the same name, the same limits and the same error everywhere.

mod yaml;

use std::ffi::OsString;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use smol_str::SmolStr;

use crate::controller::event::Role;
use crate::controller::policy::{ForceDetach, Settings, UnknownAttachments, ZoneAffinity, ZoneLabels};

/// Everything a person can set.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `kubeconfig`; `None`: the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// `ec2.…`
    pub ec2: Ec2Config,
    /// `listen`: where /livez, /readyz and /metrics are served.
    pub listen: SocketAddr,
    /// `lease.…`
    pub lease: LeaseConfig,
    /// `log.…`
    pub log: LogConfig,
    /// What the core is told: `roles`, `forceDetach`, `unmountTimeout`, `unknownAttachments`, `volumeGuard`,
    /// `sweepPeriod`, `instancePeriod` and the budgets.
    pub settings: Settings,
}

/// How EC2 is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ec2Config {
    /// `ec2.endpoint`; `None`: the SDK's own chain (`AWS_ENDPOINT_URL_EC2` works).
    pub endpoint: Option<String>,
    /// `ec2.region`; `None`: the SDK's own chain.
    pub region: Option<String>,
}

/// Where the leases live, and under which name this process holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// `lease.namespace`
    pub namespace: String,
    /// `lease.identity`; `None`: made from the host's name.
    pub identity: Option<String>,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `log.format`
    pub format: LogFormat,
    /// `log.level`: a level, or levels by module (`info,attachd::daemon=debug`).
    pub level: String,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            ec2: Ec2Config::default(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9808)),
            lease: LeaseConfig { namespace: "kube-system".to_owned(), identity: None },
            log: LogConfig { format: LogFormat::Text, level: "info".to_owned() },
            settings: Settings::default(),
        }
    }
}

/// A value given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// As the user wrote it, such as `--listen`.
    pub name: String,
    /// The key it sets, such as `listen`.
    pub key: String,
    /// The value.
    pub value: String,
}

/// Everything that is wrong with a configuration, each problem with its place.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError(Vec<Problem>);

impl ConfigError {
    /// The single problems, in the order of file, environment, flags.
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }
}

/// One thing wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the value came from.
    pub place: Place,
    /// What is wrong and what is allowed; begins with the key where there is one.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of the file; 0: the file as a whole.
    File(PathBuf, u64),
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, 0) => write!(f, "{}", path.display()),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "{name}"),
        }
    }
}

/// A value as a source gave it.
#[derive(Clone, Debug, PartialEq)]
enum Given {
    Nothing,
    Text(String),
    List(Vec<String>),
}

/// One key: what it is called, what it takes, and what it sets.
struct Key {
    path: &'static str,
    allowed: &'static str,
    set: fn(&mut Config, &Given) -> Result<(), Refused>,
}

/// Why a key refused a value, beyond "not allowed".
enum Refused {
    NotAllowed,
    Because(&'static str),
}

/// Every key, in the order of `config/attachd.yaml`.
const KEYS: &[Key] = &[
    Key {
        path: "kubeconfig",
        allowed: "the path of a kubeconfig file, or nothing",
        set: |config, given| optional(given, some_text).map(|path| config.kubeconfig = path.map(PathBuf::from)),
    },
    Key {
        path: "ec2.endpoint",
        allowed: "an http or https URL, or nothing",
        set: |config, given| optional(given, http_url).map(|url| config.ec2.endpoint = url),
    },
    Key {
        path: "ec2.region",
        allowed: "an AWS region such as eu-central-1, or nothing",
        set: |config, given| optional(given, region).map(|region| config.ec2.region = region),
    },
    Key {
        path: "ec2.mutatingBurst",
        allowed: WHOLE,
        set: |config, given| whole(given).map(|burst| config.settings.ec2_mutating.burst = burst),
    },
    Key {
        path: "ec2.mutatingPerSecond",
        allowed: RATE,
        set: |config, given| rate(given).map(|rate| config.settings.ec2_mutating.per_second = rate),
    },
    Key {
        path: "ec2.describePerSecond",
        allowed: RATE,
        set: |config, given| {
            rate(given).map(|rate| {
                config.settings.ec2_describe.per_second = rate;
                // Two seconds' worth: a cap is meant to be a cap, and the core spreads its polls.
                config.settings.ec2_describe.burst = (2.0 * rate).ceil().max(1.0) as u32;
            })
        },
    },
    Key {
        path: "ec2.sweepPerSecond",
        allowed: RATE,
        set: |config, given| {
            rate(given).map(|rate| {
                config.settings.ec2_sweep.per_second = rate;
                config.settings.ec2_sweep.burst = (rate / 5.0).ceil().max(1.0) as u32;
            })
        },
    },
    Key {
        path: "api.writesBurst",
        allowed: WHOLE,
        set: |config, given| whole(given).map(|burst| config.settings.api_writes.burst = burst),
    },
    Key {
        path: "api.writesPerSecond",
        allowed: RATE,
        set: |config, given| rate(given).map(|rate| config.settings.api_writes.per_second = rate),
    },
    Key {
        path: "listen",
        allowed: "an IP address and a port, such as 127.0.0.1:9808 or [::]:9808",
        set: |config, given| {
            text(given)?.parse().map(|address| config.listen = address).map_err(|_| Refused::NotAllowed)
        },
    },
    Key {
        path: "lease.namespace",
        allowed: "a namespace: up to 63 lower-case letters, digits and -",
        set: |config, given| {
            text(given).and_then(dns_label).map(|namespace| config.lease.namespace = namespace.to_owned())
        },
    },
    Key {
        path: "lease.identity",
        allowed: "a name of up to 253 characters without blanks, unique to this process, or nothing",
        set: |config, given| optional(given, identity).map(|identity| config.lease.identity = identity),
    },
    Key {
        path: "roles",
        allowed: "one or both of attach-detach, attacher",
        set: |config, given| roles(given).map(|roles| config.settings.roles = roles),
    },
    Key {
        path: "forceDetach",
        allowed: "impaired, always, never",
        set: |config, given| {
            let choices =
                [("impaired", ForceDetach::Impaired), ("always", ForceDetach::Always), ("never", ForceDetach::Never)];
            one_of(given, &choices).map(|choice| config.settings.force_detach = choice)
        },
    },
    Key {
        path: "unmountTimeout",
        allowed: "a duration from 1s to 24h, such as 6m or 1h 30m",
        set: |config, given| duration(given).map(|timeout| config.settings.unmount_timeout = timeout),
    },
    Key {
        path: "unknownAttachments",
        allowed: "report, detach",
        set: |config, given| {
            let choices = [("report", UnknownAttachments::Report), ("detach", UnknownAttachments::Detach)];
            one_of(given, &choices).map(|choice| config.settings.unknown_attachments = choice)
        },
    },
    Key {
        path: "zoneLabels",
        allowed: SWITCH,
        set: |config, given| {
            let choices = [("true", ZoneLabels::Write), ("false", ZoneLabels::LeaveAlone)];
            one_of(given, &choices).map(|choice| config.settings.zone_labels = choice)
        },
    },
    Key {
        path: "zoneAffinity",
        allowed: SWITCH,
        set: |config, given| {
            let choices = [("true", ZoneAffinity::Write), ("false", ZoneAffinity::LeaveAlone)];
            one_of(given, &choices).map(|choice| config.settings.zone_affinity = choice)
        },
    },
    Key {
        path: "volumeGuard.clusterName",
        allowed: "the name of this cluster in tags kubernetes.io/cluster/NAME, or nothing",
        set: |config, given| {
            let name = optional(given, tag_part)?;
            config.settings.volume_guard.cluster_name = name.map(SmolStr::from);
            Ok(())
        },
    },
    Key {
        path: "volumeGuard.requireTag",
        allowed: "KEY or KEY=VALUE, or nothing",
        set: |config, given| {
            let tag = optional(given, |text| tag_part(text.split('=').next().unwrap_or_default()).map(|_| text))?;
            config.settings.volume_guard.require_tag = tag.map(|tag| match tag.split_once('=') {
                Some((key, value)) => (key.into(), Some(value.into())),
                None => (tag.into(), None),
            });
            Ok(())
        },
    },
    Key {
        path: "sweepPeriod",
        allowed: "a duration from 1s to 24h, such as 60s",
        set: |config, given| duration(given).map(|period| config.settings.sweep_period = period),
    },
    Key {
        path: "instancePeriod",
        allowed: "a duration from 1s to 24h, such as 5s",
        set: |config, given| duration(given).map(|period| config.settings.instance_period = period),
    },
    Key {
        path: "log.format",
        allowed: "text, json",
        set: |config, given| {
            let choices = [("text", LogFormat::Text), ("json", LogFormat::Json)];
            one_of(given, &choices).map(|choice| config.log.format = choice)
        },
    },
    Key {
        path: "log.level",
        allowed: "off, error, warn, info, debug, trace, or such a level by module (info,attachd::daemon=debug)",
        set: |config, given| text(given).and_then(levels).map(|level| config.log.level = level.to_owned()),
    },
];

const SWITCH: &str = "true, false";
const WHOLE: &str = "a whole number from 1 to 100000";
const RATE: &str = "a number above 0, at most 100000";

/// Names the file where no flag does.
const FILE_VARIABLE: &str = "ATTACHD_CONFIG";

impl Config {
    /// Reads the file (that of the flag, else of `ATTACHD_CONFIG`, else none) and the environment, and lays the flags
    /// over them. Names every problem at once.
    pub fn load(file: Option<&Path>, flags: &[Flag]) -> Result<Self, ConfigError> {
        let file = file.map(Path::to_owned).or_else(|| std::env::var_os(FILE_VARIABLE).map(PathBuf::from));
        let text = match &file {
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                ConfigError(vec![Problem { place: Place::File(path.clone(), 0), message: error.to_string() }])
            })?,
            None => String::new(),
        };
        let file = file.unwrap_or_default();
        Self::merge(&file, &text, |name| std::env::var_os(name), flags)
    }

    /// The same, of what was read.
    fn merge(
        file: &Path,
        text: &str,
        variable: impl Fn(&str) -> Option<OsString>,
        flags: &[Flag],
    ) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let mut problems = Vec::new();
        match yaml::entries(text) {
            Ok(entries) => {
                for entry in entries {
                    let place = Place::File(file.to_owned(), entry.line);
                    config.apply(&entry.path, &entry.given, place, &mut problems);
                }
            }
            Err(error) => {
                problems.push(Problem { place: Place::File(file.to_owned(), error.line), message: error.message });
            }
        }
        // Only variables of known keys are looked at: Kubernetes itself sets ATTACHD_PORT and ATTACHD_SERVICE_… in
        // every pod beside a Service named attachd, so an unknown one is no mistake.
        for key in KEYS {
            let name = variable_of(key.path);
            // An empty variable is one that was not set: manifests cannot leave it out conditionally.
            let Some(value) = variable(&name).filter(|value| !value.is_empty()) else { continue };
            let given = Given::Text(value.to_string_lossy().into_owned());
            config.apply(key.path, &given, Place::Environment(name), &mut problems);
        }
        for flag in flags {
            let given = Given::Text(flag.value.clone());
            config.apply(&flag.key, &given, Place::Flag(flag.name.clone()), &mut problems);
        }
        if problems.is_empty() { Ok(config) } else { Err(ConfigError(problems)) }
    }

    /// Sets one key.
    fn apply(&mut self, path: &str, given: &Given, place: Place, problems: &mut Vec<Problem>) {
        let Some(key) = KEYS.iter().find(|key| key.path == path) else {
            let empty_section = *given == Given::Nothing && KEYS.iter().any(|key| is_below(key.path, path));
            if !empty_section {
                problems.push(Problem { place, message: unknown_key(path) });
            }
            return;
        };
        let because = match (key.set)(self, given) {
            Ok(()) => return,
            Err(Refused::NotAllowed) => String::new(),
            Err(Refused::Because(why)) => format!(" ({why})"),
        };
        let given = match given {
            Given::Nothing => "nothing".to_owned(),
            Given::Text(text) => format!("{text:?}"),
            Given::List(items) => format!("{items:?}"),
        };
        let message = format!("{path}: {given} is not allowed{because}; allowed: {}", key.allowed);
        problems.push(Problem { place, message });
    }
}

/// The environment variable of a key: `ec2.mutatingBurst` → `ATTACHD_EC2_MUTATING_BURST`.
fn variable_of(path: &str) -> String {
    let mut name = String::from("ATTACHD_");
    for c in path.chars() {
        match c {
            '.' => name.push('_'),
            c if c.is_ascii_uppercase() => {
                name.push('_');
                name.push(c);
            }
            c => name.push(c.to_ascii_uppercase()),
        }
    }
    name
}

fn is_below(path: &str, section: &str) -> bool {
    path.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

fn unknown_key(path: &str) -> String {
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    // A key in the wrong section is as near as one with a slip of two letters.
    let near = KEYS
        .iter()
        .map(|key| {
            let whole = distance(&key.path.to_ascii_lowercase(), &path.to_ascii_lowercase());
            (whole.min(distance(&last(key.path), &last(path)) + 1), key.path)
        })
        .min()
        .filter(|(distance, _)| *distance <= 2);
    match near {
        Some((_, near)) => format!("{path}: unknown key; did you mean {near}?"),
        None => {
            let keys = KEYS.iter().map(|key| key.path).collect::<Vec<_>>().join(", ");
            format!("{path}: unknown key; known keys: {keys}")
        }
    }
}

/// Letters to insert, delete or replace to get from one word to the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn text(given: &Given) -> Result<&str, Refused> {
    match given {
        Given::Text(text) => Ok(text),
        Given::Nothing | Given::List(_) => Err(Refused::NotAllowed),
    }
}

fn optional<'a>(
    given: &'a Given,
    check: impl FnOnce(&'a str) -> Result<&'a str, Refused>,
) -> Result<Option<String>, Refused> {
    match given {
        Given::Nothing => Ok(None),
        given => text(given).and_then(check).map(|text| Some(text.to_owned())),
    }
}

fn check(text: &str, good: bool) -> Result<&str, Refused> {
    if good { Ok(text) } else { Err(Refused::NotAllowed) }
}

fn some_text(text: &str) -> Result<&str, Refused> {
    check(text, !text.trim().is_empty())
}

fn http_url(text: &str) -> Result<&str, Refused> {
    let uri: http::Uri = text.parse().map_err(|_| Refused::NotAllowed)?;
    check(text, matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty()))
}

/// EC2 allows 128 characters in a tag's key. Blanks at its ends are a slip.
fn tag_part(text: &str) -> Result<&str, Refused> {
    check(text, (1..=128).contains(&text.chars().count()) && text.trim() == text && !text.contains(char::is_control))
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

fn region(text: &str) -> Result<&str, Refused> {
    check(text, text.contains('-') && text.bytes().all(is_label_byte))
}

fn dns_label(text: &str) -> Result<&str, Refused> {
    let ends = !text.starts_with('-') && !text.ends_with('-');
    check(text, (1..=63).contains(&text.len()) && ends && text.bytes().all(is_label_byte))
}

fn identity(text: &str) -> Result<&str, Refused> {
    check(text, (1..=253).contains(&text.len()) && text.chars().all(|c| !c.is_whitespace() && !c.is_control()))
}

fn whole(given: &Given) -> Result<u32, Refused> {
    text(given)?.parse().ok().filter(|number| (1..=100_000).contains(number)).ok_or(Refused::NotAllowed)
}

fn rate(given: &Given) -> Result<f64, Refused> {
    text(given)?.parse().ok().filter(|rate| *rate > 0.0 && *rate <= 100_000.0).ok_or(Refused::NotAllowed)
}

fn duration(given: &Given) -> Result<Duration, Refused> {
    let allowed = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);
    humantime::parse_duration(text(given)?)
        .ok()
        .filter(|duration| allowed.contains(duration))
        .ok_or(Refused::NotAllowed)
}

fn one_of<T: Copy>(given: &Given, choices: &[(&str, T)]) -> Result<T, Refused> {
    let text = text(given)?;
    choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice).ok_or(Refused::NotAllowed)
}

/// The name of a role in the key `roles`.
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::AttachDetach => "attach-detach",
        Role::Attacher => "attacher",
    }
}

fn roles(given: &Given) -> Result<std::collections::BTreeSet<Role>, Refused> {
    let names: Vec<&str> = match given {
        Given::Nothing => Vec::new(),
        Given::Text(text) => text.split(',').map(str::trim).collect(),
        Given::List(items) => items.iter().map(String::as_str).collect(),
    };
    if names.is_empty() {
        return Err(Refused::Because("a process without a role does nothing"));
    }
    names
        .into_iter()
        .map(|name| match name {
            "resizer" | "modifier" => Err(Refused::Because("resizer and modifier are not available in this version")),
            _ => [Role::AttachDetach, Role::Attacher]
                .into_iter()
                .find(|role| role_name(*role) == name)
                .ok_or(Refused::NotAllowed),
        })
        .collect()
}

fn levels(text: &str) -> Result<&str, Refused> {
    let is_level = |text: &str| matches!(text, "off" | "error" | "warn" | "info" | "debug" | "trace");
    let is_module =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_:".contains(&b));
    check(
        text,
        text.split(',').all(|part| match part.split_once('=') {
            Some((module, level)) => is_module(module) && is_level(level),
            None => is_level(part),
        }),
    )
}

#[cfg(test)]
mod tests;

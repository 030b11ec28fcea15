//! The configuration: every key, every error, and the annotated defaults.

use super::*;

const ANNOTATED: &str = include_str!("../../config/attachd.yaml");

fn from_file(text: &str) -> Result<Config, String> {
    Config::merge(Path::new("a.yaml"), text, |_| None, &[]).map_err(|error| error.to_string())
}

fn error_of(text: &str) -> String {
    from_file(text).unwrap_err()
}

#[test]
fn the_annotated_file_says_exactly_the_defaults() {
    assert_eq!(from_file(ANNOTATED).unwrap(), Config::default());
}

#[test]
fn the_annotated_file_shows_every_key_in_the_order_of_the_table() {
    let shown: Vec<String> = yaml::entries(ANNOTATED).unwrap().into_iter().map(|entry| entry.path).collect();
    let known: Vec<&str> = KEYS.iter().map(|key| key.path).collect();
    assert_eq!(shown, known);
}

#[test]
fn the_annotated_file_names_every_allowed_choice() {
    for choice in ["attach-detach", "attacher", "impaired", "always", "never", "report", "detach", "text", "json"] {
        assert!(ANNOTATED.contains(choice), "{choice}");
    }
}

#[test]
fn every_key_can_be_set_in_the_file() {
    let config = from_file(
        "kubeconfig: /etc/attachd/kubeconfig
ec2:
  endpoint: http://127.0.0.1:4566
  region: eu-central-1
  mutatingBurst: 500
  mutatingPerSecond: 50
  describePerSecond: 7.5
  sweepPerSecond: 20
api: {writesBurst: 200, writesPerSecond: 100}
listen: '[::]:8080'
lease: {namespace: storage, identity: host-1_a}
roles: [attacher]
forceDetach: always
unmountTimeout: 1h 30m
unknownAttachments: detach
zoneLabels: false
zoneAffinity: true
volumeGuard: {clusterName: blue, requireTag: attachd=allow}
sweepPeriod: 2m
instancePeriod: 10s
log: {format: json, level: 'warn,attachd::daemon=debug'}
",
    )
    .unwrap();
    assert_eq!(config.kubeconfig.as_deref(), Some(Path::new("/etc/attachd/kubeconfig")));
    assert_eq!(config.ec2.endpoint.as_deref(), Some("http://127.0.0.1:4566"));
    assert_eq!(config.ec2.region.as_deref(), Some("eu-central-1"));
    assert_eq!((config.settings.ec2_mutating.burst, config.settings.ec2_mutating.per_second), (500, 50.0));
    assert_eq!((config.settings.ec2_describe.burst, config.settings.ec2_describe.per_second), (15, 7.5));
    assert_eq!((config.settings.ec2_sweep.burst, config.settings.ec2_sweep.per_second), (4, 20.0));
    assert_eq!((config.settings.api_writes.burst, config.settings.api_writes.per_second), (200, 100.0));
    assert_eq!(config.listen, "[::]:8080".parse().unwrap());
    assert_eq!(config.lease, LeaseConfig { namespace: "storage".to_owned(), identity: Some("host-1_a".to_owned()) });
    assert_eq!(config.settings.roles, [Role::Attacher].into());
    assert_eq!(config.settings.force_detach, ForceDetach::Always);
    assert_eq!(config.settings.unmount_timeout, Duration::from_secs(5400));
    assert_eq!(config.settings.unknown_attachments, UnknownAttachments::Detach);
    assert_eq!(config.settings.zone_labels, ZoneLabels::LeaveAlone);
    assert_eq!(config.settings.zone_affinity, ZoneAffinity::Write);
    let guard = &config.settings.volume_guard;
    assert_eq!(guard.cluster_name.as_deref(), Some("blue"));
    assert_eq!(guard.require_tag, Some(("attachd".into(), Some("allow".into()))));
    assert_eq!(config.settings.sweep_period, Duration::from_secs(120));
    assert_eq!(config.settings.instance_period, Duration::from_secs(10));
    assert_eq!(config.log, LogConfig { format: LogFormat::Json, level: "warn,attachd::daemon=debug".to_owned() });
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let environment = |name: &str| match name {
        "ATTACHD_LISTEN" => Some(OsString::from("127.0.0.1:2")),
        "ATTACHD_EC2_MUTATING_BURST" => Some(OsString::from("7")),
        "ATTACHD_ROLES" => Some(OsString::from("attacher, attach-detach")),
        "ATTACHD_FORCE_DETACH" => Some(OsString::new()),
        _ => None,
    };
    let flag = Flag { name: "--listen".to_owned(), key: "listen".to_owned(), value: "127.0.0.1:3".to_owned() };
    let file = "listen: 127.0.0.1:1\nforceDetach: never\nec2:\n  mutatingBurst: 6\n  mutatingPerSecond: 3\n";
    let config = Config::merge(Path::new("a.yaml"), file, environment, &[flag]).unwrap();
    assert_eq!(config.listen.port(), 3);
    assert_eq!((config.settings.ec2_mutating.burst, config.settings.ec2_mutating.per_second), (7, 3.0));
    assert_eq!(config.settings.roles.len(), 2);
    assert_eq!(config.settings.force_detach, ForceDetach::Never, "an empty variable is not set");
}

#[test]
fn a_wrong_value_names_file_line_key_value_and_what_is_allowed() {
    assert_eq!(
        error_of("listen: 127.0.0.1:1\nforceDetach: sometimes\n"),
        "a.yaml:2: forceDetach: \"sometimes\" is not allowed; allowed: impaired, always, never"
    );
    let environment = |name: &str| (name == "ATTACHD_UNMOUNT_TIMEOUT").then(|| OsString::from("360"));
    let error = Config::merge(Path::new("a.yaml"), "", environment, &[]).unwrap_err().to_string();
    assert!(error.starts_with("environment variable ATTACHD_UNMOUNT_TIMEOUT: unmountTimeout: \"360\""), "{error}");
}

#[test]
fn every_problem_is_named_at_once() {
    let flag = Flag { name: "--listen".to_owned(), key: "listen".to_owned(), value: "here".to_owned() };
    let error = Config::merge(Path::new("a.yaml"), "a: 1\nforceDetach: [never]\n", |_| None, &[flag]).unwrap_err();
    let places: Vec<String> = error.problems().iter().map(|problem| problem.place.to_string()).collect();
    assert_eq!(places, ["a.yaml:1", "a.yaml:2", "--listen"]);
}

#[test]
fn an_unknown_key_is_an_error_and_a_near_miss_is_named() {
    assert_eq!(error_of("\nforcedetach: never\n"), "a.yaml:2: forcedetach: unknown key; did you mean forceDetach?");
    assert_eq!(
        error_of("ec2:\n  mutatingBurts: 5\n"),
        "a.yaml:2: ec2.mutatingBurts: unknown key; did you mean ec2.mutatingBurst?"
    );
    assert_eq!(error_of("region: eu-west-1\n"), "a.yaml:1: region: unknown key; did you mean ec2.region?");
    assert!(error_of("workers: 5\n").starts_with("a.yaml:1: workers: unknown key; known keys: kubeconfig, "));
    assert!(error_of("listen:\n  port: 5\n").starts_with("a.yaml:2: listen.port: unknown key"));
}

#[test]
fn roles_of_a_later_version_are_named_as_such() {
    assert_eq!(
        error_of("roles:\n- attacher\n- resizer\n"),
        "a.yaml:1: roles: [\"attacher\", \"resizer\"] is not allowed (resizer and modifier are not available in this \
         version); allowed: one or both of attach-detach, attacher"
    );
    assert!(error_of("roles: []\n").contains("a process without a role does nothing"));
    assert!(error_of("roles: attachdetach\n").contains("allowed: one or both of"));
}

#[test]
fn values_out_of_range_are_refused() {
    for line in [
        "ec2: {mutatingBurst: 0}",
        "ec2: {mutatingBurst: 2.5}",
        "ec2: {mutatingPerSecond: 0}",
        "ec2: {mutatingPerSecond: -1}",
        "ec2: {mutatingPerSecond: nan}",
        "ec2: {describePerSecond: 'inf'}",
        "ec2: {endpoint: 'localhost:4566'}",
        "ec2: {endpoint: 'ftp://localhost'}",
        "ec2: {region: Frankfurt}",
        "listen: 9808",
        "listen:",
        "lease: {namespace: Kube_System}",
        "lease: {identity: 'two words'}",
        "volumeGuard: {requireTag: '=allow'}",
        "volumeGuard: {clusterName: ' blue'}",
        "unmountTimeout: 0s",
        "unmountTimeout: 2days",
        "log: {level: loud}",
        "log: {level: 'info,a b=debug'}",
        "kubeconfig: ' '",
    ] {
        assert!(error_of(line).starts_with("a.yaml:1: "), "{line}");
        assert!(error_of(line).contains("allowed: "), "{line}");
    }
}

#[test]
fn an_empty_section_sets_nothing() {
    assert_eq!(from_file("ec2:\nlog:\n").unwrap(), Config::default());
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = Config::load(Some(Path::new("/nonexistent/attachd.yaml")), &[]).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/attachd.yaml: "), "{error}");
}

#[test]
fn every_key_has_its_own_variable() {
    let names: std::collections::BTreeSet<String> = KEYS.iter().map(|key| variable_of(key.path)).collect();
    assert_eq!(names.len(), KEYS.len());
    assert!(names.contains("ATTACHD_EC2_MUTATING_PER_SECOND"));
}

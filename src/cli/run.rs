//! `attachd run`: the daemon, from its flags to its end.
//!
//! Flow: flags over environment over file make the configuration; logs start; the daemon runs until a signal. Owns the
//! runtime and the signals.

use std::path::PathBuf;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Flag};
use crate::daemon;

/// Keep volumes attached where pods need them, until told to end.
///
/// Every key of the file can also be set by an environment variable (ec2.mutatingBurst: ATTACHD_EC2_MUTATING_BURST) or
/// by --set. A flag wins over the environment, that over the file, that over the default.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RunOptions {
    /// The configuration file; config/attachd.yaml shows every key [default: $ATTACHD_CONFIG, else none]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The kubeconfig file; without it, the service account of the pod
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// Where /livez, /readyz and /metrics are served
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// How log lines look: text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// What is logged: a level, or levels by module
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Set any key, such as ec2.endpoint=http://127.0.0.1:4566; may be given again
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl RunOptions {
    /// The single flags last: they say more plainly what is meant than `--set`.
    fn flags(&self) -> Vec<Flag> {
        let set = self.set.iter().map(|(key, value)| Flag {
            name: "--set".to_owned(),
            key: key.clone(),
            value: value.clone(),
        });
        let single = [
            ("--kubeconfig", "kubeconfig", &self.kubeconfig),
            ("--listen", "listen", &self.listen),
            ("--log-format", "log.format", &self.log_format),
            ("--log-level", "log.level", &self.log_level),
        ];
        let single = single.into_iter().filter_map(|(name, key, value)| {
            let value = value.clone()?;
            Some(Flag { name: name.to_owned(), key: key.to_owned(), value })
        });
        set.chain(single).collect()
    }
}

/// Runs the daemon. Returns when it has ended in order; the second signal ends the process at once.
pub fn run(options: &RunOptions) -> anyhow::Result<()> {
    let config = Config::load(options.config.as_deref(), &options.flags())?;
    daemon::telemetry::init(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let ending = CancellationToken::new();
        tokio::spawn(end_on_signals(
            signal(SignalKind::terminate()).context("watch for SIGTERM")?,
            signal(SignalKind::interrupt()).context("watch for SIGINT")?,
            ending.clone(),
        ));
        daemon::run(config, ending).await
    })
}

/// The first signal asks, the second does not.
async fn end_on_signals(mut terminate: Signal, mut interrupt: Signal, ending: CancellationToken) {
    let name = next(&mut terminate, &mut interrupt).await.0;
    tracing::info!(signal = name, "told to end; once more ends at once");
    ending.cancel();
    let (name, number) = next(&mut terminate, &mut interrupt).await;
    tracing::warn!(signal = name, "ending at once");
    // As a shell reports a process that a signal ended.
    std::process::exit(128 + number);
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> (&'static str, i32) {
    tokio::select! {
        _ = terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
        _ = interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: RunOptions,
    }

    #[test]
    fn every_flag_sets_a_key_that_exists() {
        let line = [
            "attachd",
            "--kubeconfig=/a",
            "--listen=127.0.0.1:1",
            "--log-format=json",
            "--log-level=debug",
            "--set=listen=127.0.0.1:2",
            "--set=ec2.endpoint=http://127.0.0.1:4566/?a=b",
        ];
        let config = Config::load(None, &Line::parse_from(line).options.flags()).unwrap();
        assert_eq!(config.listen.port(), 1, "the single flag wins over --set");
        assert_eq!(config.ec2.endpoint.as_deref(), Some("http://127.0.0.1:4566/?a=b"));
        assert_eq!(config.kubeconfig, Some(PathBuf::from("/a")));
    }

    #[test]
    fn a_wrong_flag_is_named() {
        let options = Line::parse_from(["attachd", "--log-format=xml"]).options;
        let error = Config::load(None, &options.flags()).unwrap_err().to_string();
        assert_eq!(error, "--log-format: log.format: \"xml\" is not allowed; allowed: text, json");
        assert!(Line::try_parse_from(["attachd", "--set=listen"]).is_err());
    }
}

//! Logs: to stderr, as text for people or one JSON object a line.
//!
//! Flow: set up once by `attachd run`, after the configuration was read.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// The Kubernetes client logs the whole body of an answer it cannot decode at WARN (a page of pods, with the environment
/// of their containers), and at ERROR each failed request, which the watches and the executor report themselves. Whoever
/// wants it can name the target in `log.level`.
const QUIET: &str = "kube_client=off";

/// Sends every log line of the process to stderr. Fails if the process has a subscriber already.
pub fn init(log: &LogConfig) -> anyhow::Result<()> {
    let filter = filter(&log.level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let done = match log.format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    };
    done.map_err(|error| anyhow::anyhow!("logs cannot be set up: {error}"))
}

fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    // The later of two directives for one target wins.
    Ok(EnvFilter::builder().parse(format!("{QUIET},{level}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(level: &str) -> String {
        filter(level).unwrap().to_string()
    }

    #[test]
    fn bodies_that_the_client_logs_stay_out_unless_asked_for() {
        assert!(shown("info").contains("kube_client=off"), "{}", shown("info"));
        let asked = shown("info,kube_client=debug");
        assert!(asked.contains("kube_client=debug") && !asked.contains("kube_client=off"), "{asked}");
    }
}

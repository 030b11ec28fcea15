//! Building the clients: one for the watches, one for the calls.
//!
//! Flow: `daemon` connects once at start. Owns time limits, TLS provider and the retry switch. Must never hand out a
//! client that retries: kube's own policy would repeat a write for minutes, long after the core took it for dead.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use kube::client::ClientBuilder;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// How long a connection may take to come about; well below the time limit of a call.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the idle limits of lists and watches, which come first; this one clears dead connections out of the pool.
const WATCH_READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Longer than an attempt, which has its own limit: it only clears dead connections out of the pool.
const CALL_READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    /// The kubeconfig could not be read or is not one.
    #[error("kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// No kubeconfig is set, and the process does not run in a pod with a service account.
    #[error("no kubeconfig is set and this is not a pod with a service account")]
    InCluster(#[source] InClusterError),
    /// The configuration names certificates, keys or an authentication that cannot be used.
    #[error("cannot build a client for the API server at {url}")]
    Client {
        /// The API server.
        url: String,
        /// What is wrong.
        #[source]
        source: Box<kube::Error>,
    },
}

/// The clients of one API server. They share no connection, so that a flood of watch events never delays a write.
#[derive(Clone)]
pub struct Clients {
    /// For [`super::watch_all`].
    pub watches: Client,
    /// For [`super::KubernetesClient`].
    pub calls: Client,
}

/// Builds the clients from a kubeconfig's current context, or, without one, from the pod's service account. Sends
/// nothing yet. Must be called on the runtime that will use the clients.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Clients, KubernetesError> {
    // Both TLS providers may be compiled in somewhere below; an error only says that one is chosen already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = match kubeconfig {
        Some(path) => from_kubeconfig(path)
            .await
            .map_err(|source| KubernetesError::Kubeconfig { path: path.to_owned(), source: Box::new(source) })?,
        None => Config::incluster().map_err(KubernetesError::InCluster)?,
    };
    Ok(Clients { watches: client(config.clone(), WATCH_READ_TIMEOUT)?, calls: client(config, CALL_READ_TIMEOUT)? })
}

async fn from_kubeconfig(path: &Path) -> Result<Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
}

pub(super) fn client(mut config: Config, read_timeout: Duration) -> Result<Client, KubernetesError> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(read_timeout);
    // Else the time a pooled connection sat idle counts against the next answer.
    config.reset_reader_on_write = true;
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("attachd/", env!("CARGO_PKG_VERSION")))));
    let url = config.cluster_url.to_string();
    let builder =
        ClientBuilder::try_from(config).map_err(|source| KubernetesError::Client { url, source: Box::new(source) })?;
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn error_of(kubeconfig: Option<&Path>) -> String {
        let error = connect(kubeconfig).await.err().expect("an error");
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }

    #[tokio::test]
    async fn an_error_names_the_file_and_what_is_wrong_with_it() {
        let missing = error_of(Some(Path::new("/nonexistent/kubeconfig"))).await;
        assert!(missing.starts_with("kubeconfig /nonexistent/kubeconfig: "), "{missing}");
        let not_one = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let wrong = error_of(Some(Path::new(not_one))).await;
        assert!(wrong.starts_with(&format!("kubeconfig {not_one}: ")), "{wrong}");
    }
}

//! The command line: one file a subcommand.
//!
//! Flow: `main` parses into [`CommandLine`] and runs it. Owns what people read and write in a terminal. Must hold no
//! logic of its own beyond arguments in and text out.

#[cfg(feature = "daemon")]
pub mod run;
#[cfg(feature = "daemon")]
pub mod sandbox;
pub mod simulate;

use std::process::ExitCode;

/// Keeps AWS EBS volumes attached where Kubernetes pods need them, and nowhere else.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "attachd", version, propagate_version = true)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Subcommand,
}

/// The subcommands.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Subcommand {
    /// Run the real core against a modelled cluster and EC2, in virtual time: no cluster, no account needed.
    Simulate(simulate::SimulateOptions),
    #[cfg(feature = "daemon")]
    /// Keep volumes attached where pods need them, until told to end.
    Run(run::RunOptions),
    #[cfg(feature = "daemon")]
    /// Serve a modelled EC2 that any AWS client can talk to, with no AWS account.
    Sandbox(sandbox::SandboxArgs),
}

impl CommandLine {
    /// Does what was asked for; the exit code is the subcommand's. An error: it could not be done, with the chain of
    /// causes.
    pub fn execute(&self) -> anyhow::Result<ExitCode> {
        match &self.command {
            Subcommand::Simulate(options) => simulate::run(options),
            #[cfg(feature = "daemon")]
            Subcommand::Run(options) => run::run(options).map(|()| ExitCode::SUCCESS),
            #[cfg(feature = "daemon")]
            Subcommand::Sandbox(args) => sandbox::run(args, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS),
        }
    }
}

//! The command line: one file a subcommand.
//!
//! Flow: `main` parses into [`CommandLine`] and runs it. Must hold no logic of its own beyond arguments in and text out.

#[cfg(feature = "daemon")]
pub mod run;
#[cfg(feature = "daemon")]
pub mod sandbox;

/// Keeps AWS EBS volumes attached where Kubernetes pods need them, and nowhere else.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "attachd", version)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Subcommand,
}

/// The subcommands.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Subcommand {
    #[cfg(feature = "daemon")]
    /// Keep volumes attached where pods need them, until told to end.
    Run(run::RunOptions),
    #[cfg(feature = "daemon")]
    /// Serve a modelled EC2 that any AWS client can talk to, with no AWS account.
    Sandbox(sandbox::SandboxArgs),
}

impl CommandLine {
    /// Does what was asked for. An error: it could not be done, with the chain of causes.
    pub fn execute(&self) -> anyhow::Result<()> {
        match self.command {
            #[cfg(feature = "daemon")]
            Subcommand::Run(ref options) => run::run(options),
            #[cfg(feature = "daemon")]
            Subcommand::Sandbox(ref args) => sandbox::run(args, &mut std::io::stdout()),
        }
    }
}

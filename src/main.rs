//! attachd: parses arguments, calls the subcommand, turns an error chain into an exit code.

use std::io::Write;
use std::process::ExitCode;

use attachd::cli::CommandLine;
use clap::Parser;

/// What was asked for could not be done; clap's own code for arguments it does not understand. 1 is a subcommand's no.
const COULD_NOT: u8 = 2;

fn main() -> ExitCode {
    // Before anything makes a TLS connection; it fails only if a provider is chosen already.
    #[cfg(feature = "daemon")]
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match CommandLine::parse().execute() {
        Ok(code) => code,
        Err(error) => {
            // With stderr closed there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "attachd: {error:#}");
            ExitCode::from(COULD_NOT)
        }
    }
}

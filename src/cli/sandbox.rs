//! `attachd sandbox`: EC2 on loopback.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Context, ensure};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::sandbox::{Sandbox, SandboxOptions};
use crate::sim::ec2::{Ec2Options, Throttling};

/// Serve a modelled EC2 that any AWS client can talk to, with no AWS account.
#[derive(Clone, Debug, clap::Args)]
pub struct SandboxArgs {
    /// Where to listen. The sandbox asks nobody who they are: keep it on loopback.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4566")]
    listen: SocketAddr,
    /// Region; its zones are a, b and c.
    #[arg(long, default_value = "us-east-1")]
    region: String,
    /// Instances that run from the start, in zone a.
    #[arg(long, value_name = "N", default_value_t = 0)]
    instances: u32,
    /// Volumes that are available from the start, in zone a.
    #[arg(long, value_name = "N", default_value_t = 0)]
    volumes: u32,
    /// How many times as fast as EC2 things happen and token buckets refill.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    speed: f64,
    /// Refuse no call for its rate.
    #[arg(long)]
    no_throttle: bool,
    /// Seed of everything that is left to chance.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl SandboxArgs {
    fn options(&self) -> anyhow::Result<SandboxOptions> {
        ensure!(self.speed.is_finite() && self.speed > 0.0, "--speed {} is not a positive number", self.speed);
        let mut ec2 = Ec2Options::default().faster(self.speed);
        if self.no_throttle {
            ec2.throttling = Throttling::Off;
        }
        Ok(SandboxOptions {
            ec2,
            seed: self.seed,
            region: self.region.clone(),
            instances: self.instances,
            volumes: self.volumes,
            ..SandboxOptions::default()
        })
    }
}

/// Serves until SIGINT or SIGTERM; says on `out` where.
pub fn run(args: &SandboxArgs, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let sandbox = Sandbox::new(args.options()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(serve(args, &sandbox, out))
}

async fn serve(args: &SandboxArgs, sandbox: &Sandbox, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("listen on {}", args.listen))?;
    let address = listener.local_addr().context("read the address listened on")?;
    let region = &args.region;
    writeln!(out, "EC2 sandbox of {region} on http://{address}; everything it holds: http://{address}/sandbox/state")?;
    let credentials = "AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any";
    writeln!(out, "use it with AWS_ENDPOINT_URL_EC2=http://{address} AWS_REGION={region} {credentials}")?;
    out.flush()?;
    let mut terminate = signal(SignalKind::terminate()).context("watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("watch for SIGINT")?;
    let told_to_end = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    sandbox.serve(listener, told_to_end).await.context("serve the sandbox")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: SandboxArgs,
    }

    fn options(line: &[&str]) -> anyhow::Result<SandboxOptions> {
        Line::try_parse_from(["sandbox"].iter().chain(line))?.args.options()
    }

    #[test]
    fn flags_make_the_options() {
        let plain = options(&[]).unwrap();
        assert_eq!((plain.ec2, plain.instances), (Ec2Options::default(), 0));
        let fast = options(&["--speed", "10", "--volumes", "7", "--seed", "3"]).unwrap();
        assert_eq!(fast.ec2.attaching.max * 10, Ec2Options::default().attaching.max);
        assert_eq!((fast.volumes, fast.seed), (7, 3));
        assert_eq!(options(&["--no-throttle"]).unwrap().ec2.throttling, Throttling::Off);
        for bad in ["0", "-1", "NaN", "fast"] {
            assert!(options(&["--speed", bad]).is_err(), "{bad}");
        }
    }
}
